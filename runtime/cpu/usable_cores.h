#pragma once

// How many cores this process may use, which is how many threads compute if nobody says how many.

#include <filesystem>

namespace spool {

// Those that it may run on (sched_setaffinity, taskset, cpuset), or fewer if a control group's
// quota of processor time is that of fewer, rounded up; at least 1.
int usable_cores();

// The same of a process that may run on so many.  `root`: of the file system, for tests.
int usable_cores(int may_run_on, const std::filesystem::path& root);

}  // namespace spool
