#pragma once

// Finds the folders of the control groups of this process (cgroups, versions 1 and 2), which have
// its limits, by /proc/self/cgroup and /proc/self/mountinfo.

#include <filesystem>
#include <string_view>
#include <vector>

namespace spool {

// The folder of a control group.
struct ControlGroup {
  std::filesystem::path folder = {};
  int version = 2;
};

// The mounted groups of this process that have a controller, such as "memory" or "cpu", inner
// before outer.  Groups of version 2 are listed whether they have the controller or not, and a
// folder may be missing.  `root`: of the file system, for tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

}  // namespace spool
