#pragma once

// The rank that a launcher made of this process, by environment variables alone.

#include <functional>
#include <optional>
#include <string>

namespace spool {

struct LaunchedRank {
  std::string launcher;  // "torchrun", "mpirun", "srun"
  int rank = 0, size = 1;
  std::optional<int> local_rank;
};

// Null for a variable that is not set.
using Environment = std::function<const char*(const char*)>;

// The innermost launcher's; nothing without one.  An error names variables that are there in part,
// are no numbers, or contradict each other.
std::optional<LaunchedRank> rank_of_launcher(const Environment&);

}  // namespace spool
