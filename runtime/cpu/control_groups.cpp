#include "spool/runtime/cpu/control_groups.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "spool/runtime/check.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// A mount point of control groups.
struct GroupMount {
  int version = 0;
  std::string controllers = {};    // of version 1
  fs::path top = {}, folder = {};  // `top` is mounted at `folder`
};

// Whether a list with commas has the word.
bool has_word(std::string_view list, std::string_view word) {
  return sentence(',', list, ',').find(sentence(',', word, ',')) != std::string::npos;
}

// Decodes a path in which blanks and backslashes are a backslash and three octal digits.
std::string without_escapes(std::string_view text) {
  constexpr size_t digits = 3;
  constexpr std::string_view octal = "01234567";
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view code = text.substr(i + 1, digits);
    const bool is_code = text[i] == '\\' && code.size() == digits &&
                         code.find_first_not_of(octal) == std::string_view::npos;
    if (is_code) i += digits;
    plain += is_code ? static_cast<char>(std::stoi(std::string(code), nullptr, 8)) : text[i];
  }
  return plain;
}

// A line is ID PARENT DEVICE TOP FOLDER OPTIONS OPTIONAL... - TYPE SOURCE OPTIONS, and the last
// options have the controllers.
std::optional<GroupMount> mount_in(const std::string& line, const fs::path& root) {
  std::istringstream words(line);
  std::string skipped, top, folder, type, source, options;
  words >> skipped >> skipped >> skipped >> top >> folder;
  while (words >> skipped && skipped != "-") {
  }
  words >> type >> source >> options;
  if (type != "cgroup" && type != "cgroup2") return {};
  return GroupMount{.version = type == "cgroup" ? 1 : 2,
                    .controllers = options,
                    .top = without_escapes(top),
                    .folder = root / fs::path(without_escapes(folder)).relative_path()};
}

// The group's path relative to the mounted one; empty if it is not below it, as in a container that
// mounts its own group but is told the host's name of it.
fs::path below(const fs::path& group, const fs::path& top) {
  const fs::path relative = group.lexically_relative(top);
  const bool is_below = !relative.empty() && *relative.begin() != ".." && relative != ".";
  return is_below ? relative : fs::path();
}

}  // namespace

// A line of /proc/self/cgroup is NUMBER:CONTROLLERS:GROUP; version 2 names no controllers.
std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::vector<GroupMount> mounts;
  std::ifstream mounted(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounted, line);) {
    if (auto mount = mount_in(line, root)) mounts.push_back(std::move(*mount));
  }
  std::vector<ControlGroup> groups;
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;
    if (version == 1 && !has_word(controllers, controller)) continue;
    const auto mount = std::ranges::find_if(mounts, [&](const GroupMount& m) {
      return m.version == version && (version == 2 || has_word(m.controllers, controller));
    });
    if (mount == mounts.end()) continue;
    for (fs::path at = below(line.substr(second + 1), mount->top);; at = at.parent_path()) {
      groups.push_back({.folder = mount->folder / at, .version = version});
      if (at.empty()) break;
    }
  }
  return groups;
}

}  // namespace spool
