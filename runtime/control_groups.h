#pragma once

// The folders in which Linux says what the control groups of this process allow it, of version 1
// and 2, by /proc/self/cgroup and /proc/self/mountinfo.

#include <filesystem>
#include <string_view>
#include <vector>

namespace spool {

// The folder of a control group.
struct ControlGroup {
  std::filesystem::path folder = {};
  int version = 2;
};

// The groups of this process that have a controller, such as "memory" or "cpu": each before the one
// around it, as far as they are mounted.  Those of version 2 are among them whether they have it or
// not, and a folder need not exist.  `root`: of the file system, for tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

}  // namespace spool
