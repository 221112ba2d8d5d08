#include "spool/models/cli/ranks/as_rank.h"

#include <exception>

#include "spool/runtime/log.h"

namespace spool {
namespace {

std::shared_ptr<Communicator> join_others(const MeetingPlace& place, const LaunchedRank& own,
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

}  // namespace

int run_as_rank(const LaunchedRank& launched, const MeetingPlace& place, const RankWork& work) {
  std::shared_ptr<Communicator> own;
  try {
    own = join_others(place, launched, work);
    return work.run(own);
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
    throw Error(error->kind(), sentence("rank ", own->rank(), ": ", e.what()), error->fields());
  }
}

}  // namespace spool
