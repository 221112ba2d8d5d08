#include "spool/models/data/find_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <set>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> matches(const std::string& pattern) {
  struct Found {
    ::glob_t glob = {};
    ~Found() { ::globfree(&glob); }
  } found;
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found.glob);
  check_file(result == 0 || result == GLOB_NOMATCH, pattern, "its folders cannot be searched");
  std::vector<fs::path> paths(found.glob.gl_pathv, found.glob.gl_pathv + found.glob.gl_pathc);
  std::ranges::sort(paths);
  return paths;
}

bool has_content(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) > 0;
}

std::vector<fs::path> files_named(const std::string& pattern) {
  check_setting(!pattern.empty(), {"data"}, "the name of a file is empty; give one");
  std::error_code error;
  const bool is_path = fs::exists(fs::path(pattern), error);
  if (error) fail_file(pattern, "read", error.value());
  if (is_path) {
    check_file(!path_is_directory(pattern), pattern, "is a directory; name the files in it, as in ",
               (fs::path(pattern) / "*.txt").string());
    return {pattern};
  }
  check_file(pattern.find_first_of("*?[") != std::string::npos, pattern, "there is no such file");
  check_file(pattern.find("**") == std::string::npos, pattern,
             "** is not supported; give a pattern for each depth of folders");
  std::vector<fs::path> paths = matches(pattern);
  check_file(!paths.empty(), pattern, "no file matches");
  std::erase_if(paths, [](const fs::path& path) { return !has_content(path); });
  check_file(!paths.empty(), pattern, "matches only directories and empty files");
  return paths;
}

bool is_source(const fs::path& path) {
  constexpr std::array extensions = {".h", ".cpp", ".cu", ".md"};
  return std::ranges::find(extensions, path.extension().string()) != extensions.end();
}

}  // namespace

std::vector<fs::path> find_files(std::span<const std::string> patterns) {
  std::vector<fs::path> files;
  std::set<fs::path> seen;
  for (const std::string& pattern : patterns) {
    for (const fs::path& path : files_named(pattern)) {
      if (seen.insert(fs::weakly_canonical(path)).second) files.push_back(path);
    }
  }
  return files;
}

std::vector<fs::path> default_texts(const fs::path& root) {
  constexpr std::array folders = {"autograd", "benchmarks", "docs",    "examples", "kernels",
                                  "models",   "planner",    "runtime", "tests"};
  std::vector<fs::path> files;
  if (has_content(root / "README.md")) files.push_back(root / "README.md");
  for (const char* folder : folders) {
    std::error_code absent;
    for (const fs::path& path : fs::recursive_directory_iterator(root / folder, absent)) {
      if (is_source(path) && has_content(path)) files.push_back(path);
    }
  }
  std::ranges::sort(files);
  check_file_setting(!files.empty(), root.string(), {"data"},
                     "Spool's sources, the default data, are not there; name text files");
  return files;
}

}  // namespace spool
