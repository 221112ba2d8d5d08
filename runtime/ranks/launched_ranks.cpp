#include "spool/runtime/ranks/launched_ranks.h"

#include <optional>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/sockets.h"

namespace spool {

JoinedRanks join_ranks(const LaunchedRank& own, const MeetingPlace& place,
                       const MeetingPatience& patience) {
  const std::string by = own.launcher == "spool" ? ", processes" : " by " + own.launcher;
  return {.own = ranks_of_sockets(place, own.rank, own.size, patience),
          .words = sentence(own.size, " ranks", by, ", which exchange by sockets")};
}

std::shared_ptr<Communicator> ranks_of_launcher() {
  const std::optional<LaunchedRank> launched = rank_of_launcher();
  if (!launched) return nullptr;
  return join_ranks(*launched, meeting_place(*launched, /*meet=*/"")).own;
}

}  // namespace spool
