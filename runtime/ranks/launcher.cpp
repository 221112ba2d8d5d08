#include "spool/runtime/ranks/launcher.h"

#include <charconv>
#include <string_view>

#include "spool/runtime/check.h"

namespace spool {
namespace {

struct LauncherVariables {
  const char *launcher, *rank, *size, *local_rank;
  bool rank_alone_counts;  // else the size decides: Slurm sets the rank in batch scripts, too
};

constexpr LauncherVariables launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", true},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", false},
};

int number_of(const char* name, const char* text) {
  const std::string_view digits(text);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  check(error == std::errc() && end == digits.data() + digits.size() && number >= 0, name, " is '",
        text, "', and a launcher sets it to a number");
  return number;
}

}  // namespace

std::optional<LaunchedRank> rank_of_launcher(const Environment& of) {
  for (const LauncherVariables& names : launchers) {
    const char *rank = of(names.rank), *size = of(names.size), *local = of(names.local_rank);
    if (!size && !(rank && names.rank_alone_counts)) continue;
    check(rank && size, rank ? names.rank : names.size, " is set, and ",
          rank ? names.size : names.rank, " is not; ", names.launcher, " sets both");
    LaunchedRank found{names.launcher, number_of(names.rank, rank), number_of(names.size, size),
                       std::nullopt};
    check(found.rank < found.size, names.rank, " is ", found.rank, ", and ", names.size, " ",
          found.size, ": ranks count from 0");
    if (local) found.local_rank = number_of(names.local_rank, local);
    return found;
  }
  return std::nullopt;
}

}  // namespace spool
