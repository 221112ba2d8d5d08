#pragma once

// The memory of this machine's host, as far as this process may use it, in bytes.  Linux tells: in
// /proc, and for control groups in their folders (runtime/control_groups.h).

#include <cstddef>
#include <filesystem>
#include <limits>

namespace spool {

// The machine's, or the lowest limit of the control groups that this process is in.
size_t host_memory();
// What programs can be given now without swapping.
size_t available_host_memory();
// What this process has in memory now.
size_t resident_memory();

// The limits of this process's control groups.  `root`: of the file system, for tests.
struct ControlGroupMemory {
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max();
  size_t limit = unlimited;      // the lowest of the group and of those around it
  size_t available = unlimited;  // the least that one of them has left; file caches count as free
};
ControlGroupMemory control_group_memory(const std::filesystem::path& root = "/");

}  // namespace spool
