#include "spool/runtime/cpu/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

#include "spool/runtime/cpu/control_groups.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// A mask that is too small for the machine's processors is refused with EINVAL.
int cores_by_affinity() {
  constexpr size_t max_sets = 1024;  // of 1024 processors each
  for (size_t sets = 1; sets <= max_sets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

// A group's quota in cores: processor time per period; infinite if it has none.
double quota_of(const ControlGroup& group) {
  double quota = -1, period = 0;
  if (group.version == 2) {
    std::ifstream(group.folder / "cpu.max") >> quota >> period;  // "max" is no number
  } else {
    std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : INFINITY;
}

}  // namespace

int usable_cores() { return usable_cores(cores_by_affinity(), "/"); }

int usable_cores(int may_run_on, const fs::path& root) {
  double cores = may_run_on;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    cores = std::min(cores, std::ceil(quota_of(group)));
  }
  return std::max(1, static_cast<int>(cores));
}

}  // namespace spool
