#include "spool/runtime/ranks/launched_ranks.h"

#include <optional>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/mpi.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/sockets.h"

namespace spool {
namespace {

// Null, with the reason, where the launcher is none of the module's MPI.
std::shared_ptr<Communicator> join_by_mpi(const LaunchedRank& own, std::string* why_not) {
  const std::string mpi = mpi_in_words();
  const bool is_started_by_open_mpi = own_environment("OMPI_COMM_WORLD_SIZE") != nullptr;
  const bool is_alike = mpi.starts_with("Open MPI") == is_started_by_open_mpi;
  if (is_alike || mpi.starts_with("no MPI")) return ranks_of_mpi(own.size, why_not);
  *why_not = sentence(mpi, ", whose mpirun did not start them");
  return nullptr;
}

}  // namespace

JoinedRanks join_ranks(const LaunchedRank& own, const MeetingPlace& place,
                       const MeetingPatience& patience) {
  const std::string by = own.launcher == "spool" ? ", processes" : " by " + own.launcher;
  const std::string words = sentence(own.size, " ranks", by);
  std::string why_not;
  if (own.launcher == "mpirun") {
    if (auto joined = join_by_mpi(own, &why_not)) return {joined, words, mpi_in_words()};
    why_not = sentence(", not by MPI: ", why_not);
  }
  return {.own = ranks_of_sockets(place, own.rank, own.size, patience),
          .words = words,
          .exchange = "sockets" + why_not};
}

std::shared_ptr<Communicator> ranks_of_launcher() {
  const std::optional<LaunchedRank> launched = rank_of_launcher();
  if (!launched) return nullptr;
  return join_ranks(*launched, meeting_place(*launched, /*meet=*/"")).own;
}

}  // namespace spool
