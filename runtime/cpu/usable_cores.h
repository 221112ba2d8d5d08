#pragma once

// The number of cores this process may use, which is the default number of compute threads.

#include <filesystem>

namespace spool {

// The cores in its affinity mask (sched_setaffinity, taskset, cpuset), or fewer if a control
// group's quota of processor time is smaller, rounded up; at least 1.
int usable_cores();

// The same for a process whose mask has `may_run_on` cores.  `root`: of the file system, for tests.
int usable_cores(int may_run_on, const std::filesystem::path& root);

}  // namespace spool
