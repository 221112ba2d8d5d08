#include "spool/runtime/memory/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "spool/runtime/check.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// The number in a file, or after a key in it; nothing if it is not there ("max" is none).
std::optional<size_t> number_in(const fs::path& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && file >> word && word != key) {
  }
  size_t number = 0;
  if (file >> number) return number;
  return {};
}

// How a version of control groups calls its files.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cached;  // key in memory.stat: of file caches that can be dropped
};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file"};

// Adds what a group and those around it allow.
void add_groups(const fs::path& mounted, fs::path group, const GroupFiles& files,
                ControlGroupMemory& all) {
  while (true) {
    const fs::path folder = mounted / group.relative_path();
    if (const auto limit = number_in(folder / files.limit)) {
      const size_t used = number_in(folder / files.used).value_or(0);
      const size_t cached = number_in(folder / "memory.stat", files.cached).value_or(0);
      const size_t taken = used - std::min(used, cached);
      all.limit = std::min(all.limit, *limit);
      all.available = std::min(all.available, *limit - std::min(*limit, taken));
    }
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t machine_memory() { return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

ControlGroupMemory own_groups() {
  return control_group_memory("/proc/self/cgroup", "/sys/fs/cgroup");
}

}  // namespace

// Lines are NUMBER:CONTROLLERS:GROUP; version 2 names no controllers.
ControlGroupMemory control_group_memory(const fs::path& groups_of_process,
                                        const fs::path& mounted) {
  ControlGroupMemory all;
  std::ifstream lines(groups_of_process);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = sentence(',', line.substr(first + 1, second - first - 1), ',');
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") {
      add_groups(mounted, group, version_2, all);
      add_groups(mounted / "unified", group, version_2, all);
    } else if (controllers.find(",memory,") != std::string::npos) {
      add_groups(mounted / "memory", group, version_1, all);
    }
  }
  return all;
}

size_t host_memory() { return std::min(machine_memory(), own_groups().limit); }

size_t available_host_memory() {
  constexpr size_t kibibyte = 1024;
  const auto free = number_in("/proc/meminfo", "MemAvailable:");
  const size_t machine = free ? *free * kibibyte : machine_memory();
  return std::min(machine, own_groups().available);
}

size_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * page_bytes();
}

}  // namespace spool
