#include "spool/runtime/memory/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "spool/runtime/cpu/control_groups.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// The number in a file, or after a key in it; absent if there is none, or "max".
std::optional<size_t> number_in(const fs::path& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && file >> word && word != key) {
  }
  size_t number = 0;
  if (file >> number) return number;
  return {};
}

// File names of a version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cached;  // a key in memory.stat: bytes of file caches that can be dropped
};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file"};

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t machine_memory() { return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

}  // namespace

ControlGroupMemory control_group_memory(const fs::path& root) {
  ControlGroupMemory all;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const GroupFiles& files = group.version == 1 ? version_1 : version_2;
    const auto limit = number_in(group.folder / files.limit);
    if (!limit) continue;
    const size_t used = number_in(group.folder / files.used).value_or(0);
    const size_t cached = number_in(group.folder / "memory.stat", files.cached).value_or(0);
    const size_t taken = used - std::min(used, cached);
    all.limit = std::min(all.limit, *limit);
    all.available = std::min(all.available, *limit - std::min(*limit, taken));
  }
  return all;
}

size_t host_memory() { return std::min(machine_memory(), control_group_memory().limit); }

size_t available_host_memory() {
  constexpr size_t kibibyte = 1024;
  const auto free = number_in("/proc/meminfo", "MemAvailable:");
  const size_t machine = free ? *free * kibibyte : machine_memory();
  return std::min(machine, control_group_memory().available);
}

size_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * page_bytes();
}

}  // namespace spool
