#pragma once

// The rank that a launcher made of this process, and where its ranks meet, by environment variables
// alone.

#include <functional>
#include <optional>
#include <string>

#include "spool/runtime/ranks/meeting.h"

namespace spool {

struct LaunchedRank {
  std::string launcher;  // "torchrun", "mpirun", "srun", or "spool", which starts its own ranks
  int rank = 0, size = 1;
};

// Null for a variable that is not set.
using Environment = std::function<const char*(const char*)>;
const char* own_environment(const char* name);

// The innermost launcher's; nothing without one, or where it started one process only.  An error
// names variables that are there in part, are no numbers, or contradict each other.
std::optional<LaunchedRank> rank_of_launcher(const Environment& = own_environment);

// HOST:PORT of `meet` if that is not empty; else what the launcher says; else a socket of this
// machine, named after the job.
MeetingPlace meeting_place(const LaunchedRank&, const std::string& meet,
                           const Environment& = own_environment);

// The first of the hosts of a list of Slurm's, such as "gpu[07-09,12],login": gpu07.
std::string first_host(const std::string& node_list);

// Of a process that `spool` starts as a rank.
namespace rank_variables {
inline constexpr const char *rank = "SPOOL_RANK", *ranks = "SPOOL_RANKS", *job = "SPOOL_MEETING";
}

}  // namespace spool
