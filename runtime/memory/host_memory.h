#pragma once

// Bytes of host memory that this process may use, as Linux reports them in /proc and in the folders
// of control groups (runtime/cpu/control_groups.h).

#include <cstddef>
#include <filesystem>
#include <limits>

namespace spool {

// Memory of the machine, or the lowest limit of this process's control groups, whichever is less.
size_t host_memory();
// Memory that can be allocated now without swapping.
size_t available_host_memory();
// Memory that this process occupies now.
size_t resident_memory();

// The limits of this process's control groups.
struct ControlGroupMemory {
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max();
  size_t limit = unlimited;      // the lowest of the group's and its ancestors' limits
  size_t available = unlimited;  // the least left within one of them; file caches count as free
};
// `root`: root of the file system, another one in tests.
ControlGroupMemory control_group_memory(const std::filesystem::path& root = "/");

}  // namespace spool
