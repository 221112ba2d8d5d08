#include "spool/models/cli/ranks/launched_command.h"

#include <exception>
#include <optional>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/ranks/refusals.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/watchdog.h"

namespace spool {
namespace {

std::shared_ptr<Communicator> join_others(const LaunchedRank& own, const MeetingPlace& place,
                                          const RankWork& work) {
  MeetingPatience patience;
  patience.says = [](const std::string& text) { logger().warn("{}", text); };
  const JoinedRanks joined = join_ranks(own, place, patience);
  if (own.rank == 0) work.say(joined);
  return joined.own;
}

// The lowest rank that is left says which ranks are lost; the program that started its own ranks
// says itself which of them were killed.
int end_with_others(const LaunchedRank& own, const RankWork& work, const RankEnded& e) {
  const bool is_own_process = own.launcher == "spool";
  const bool tells =
      e.loss() == RankLoss::absent || (e.loss() == RankLoss::disappeared && !is_own_process);
  if (tells) fail(ErrorKind::device, e.what(), "; ", work.is_left());
  return 1;
}

// By an error of this rank or another: the exit code, unless it is this rank's to say, and thrown.
int end_by(const std::exception_ptr& why, const LaunchedRank& launched, const RankWork& work,
           Communicator* own) {
  try {
    std::rethrow_exception(why);
  } catch (const RankEnded& e) {
    // The one that says why an end began has told the others.
    if (own && e.loss() != RankLoss::another_tells) own->fail(e.what());
    return end_with_others(launched, work, e);
  } catch (const std::exception& e) {
    if (!own) throw;
    const bool another_tells = own->has_lower_rank_failed();
    own->fail(e.what());
    if (another_tells) return 1;
    const auto* const error = dynamic_cast<const Error*>(&e);
    if (own->rank() == 0 || !error) throw;
    throw Error(error->kind(), words_of_rank(own->rank(), e.what()), error->fields());
  }
}

int run_as_rank(const LaunchedRank& launched, const MeetingPlace& place, const RankWork& work) {
  std::shared_ptr<Communicator> own;
  try {
    own = join_others(launched, place, work);
    set_last_words([&](int, const std::exception_ptr& error) {
      try {
        end_by(error, launched, work, own.get());
      } catch (const std::exception& e) {
        logger().error("{}", e.what());
      }
    });
    return work.run(own);
  } catch (...) {
    return end_by(std::current_exception(), launched, work, own.get());
  }
}

}  // namespace

Device device_of(const RunOptions& o) {
  if (o.training.ranks == 0 || !chooses_gpus(o.device_name)) return device_of(o.device_name);
  return {DeviceType::cuda};
}

bool starts_processes(const RunOptions& o) {
  const bool has_gpus = o.device.type == DeviceType::cuda;
  check_setting(!has_gpus || o.ranks_as != "threads", {"ranks-as", "device"},
                "ranks on GPUs are processes, each with a GPU of its own; leave --ranks-as threads "
                "out, or choose --device cpu");
  if (has_gpus) check_gpus(o.training.ranks, gpu_count());
  const bool is_alone = o.training.ranks == 1;  // and so this process itself
  return !is_alone && (has_gpus || o.ranks_as == "processes");
}

std::string in_words(const JoinedRanks& all, bool has_gpus) {
  return sentence(all.words, ", which exchange by ", has_gpus ? "NCCL" : all.exchange);
}

void check_launch(const RunOptions& o, const std::optional<LaunchedRank>& launched) {
  if (!launched) {
    return check_setting(o.meet.empty(), {"meet"},
                         "--meet says where the ranks meet that a launcher started, such as "
                         "torchrun, mpirun or srun, and there is none");
  }
  check_setting(o.training.ranks == launched->size, {"ranks", "mesh"}, launched->launcher,
                " started ", launched->size, " ranks, and the run is to have ", o.training.ranks,
                "; say the same number, or none");
  check_setting(o.ranks_as != "threads", {"ranks-as"}, launched->launcher, " started ",
                launched->size, " processes, which are the ranks; leave --ranks-as threads out");
}

int run_launched(const LaunchedRank& launched, const std::string& meet,
                 const std::function<RankWork()>& prepare) {
  std::optional<MeetingPlace> place;
  RankWork work;
  try {
    place = meeting_place(launched, meet);
    work = prepare();
  } catch (const Error& e) {
    if (!is_to_say(launched, meet, e.what())) return 1;
    throw Error(e.kind(), words_of_rank(launched.rank, e.what()), e.fields());
  }
  return run_as_rank(launched, *place, work);
}

}  // namespace spool
