#include "spool/models/cli/ranks/train_ranks.h"

#include "spool/models/cli/interrupt.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/ranks/as_rank.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/training/train.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

std::string what_is_left(const std::string& out) {
  const auto latest = latest_checkpoint(out);
  return latest ? sentence("the last checkpoint is ", latest->string(),
                           ", and --resume goes on "
                           "with it on any number of ranks")
                : std::string("no checkpoint had been written yet");
}

// Whether the run was stopped.
bool train_with(const RunOptions& o, const std::shared_ptr<Communicator>& own) {
  RunListener silent;
  RunPrinter printer;
  RunListener& listener = own->rank() == 0 ? static_cast<RunListener&>(printer) : silent;
  const RunSetup run = set_up_run(o, listener, own);
  catch_interrupts();
  return train(run, interrupted);
}

}  // namespace

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

int train_on_threads(const RunOptions& o) {
  set_rank_timeout(o.rank_timeout);
  run_ranks(o.training.ranks,
            [&](const std::shared_ptr<Communicator>& own) { train_with(o, own); });
  return interrupted() ? stopped_by_a_signal : 0;
}

int train_on_processes(const RunOptions& o) {
  return run_as_processes(o.training.ranks, [&] { return what_is_left(o.out); });
}

int train_as_rank(const RunOptions& o, const LaunchedRank& launched, const MeetingPlace& place) {
  set_rank_timeout(o.rank_timeout);
  const auto run = [&](const std::shared_ptr<Communicator>& own) {
    const bool is_stopped = train_with(o, own);
    return is_stopped || interrupted() ? stopped_by_a_signal : 0;
  };
  const auto say = [&](const JoinedRanks& all) {
    const bool has_gpus = o.device.type == DeviceType::cuda;
    RunPrinter().say(sentence(all.words, ", which exchange by ", has_gpus ? "NCCL" : all.exchange));
  };
  return run_as_rank(launched, place,
                     {.run = run, .say = say, .is_left = [&] { return what_is_left(o.out); }});
}

}  // namespace spool
