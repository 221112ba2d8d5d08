#include "spool/models/texts.h"

#include <glob.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "spool/models/file.h"
#include "spool/runtime/check.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The bytes of a file, for as long as this lives.
class Mapping {
 public:
  explicit Mapping(const fs::path& path) {
    const File file = File::open(path);
    size_ = file.size();
    check_file(size_ > 0, file.name(), "is empty");
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (address == MAP_FAILED) fail_file(file.name(), "mapped into memory", errno);
    data_ = static_cast<const uint8_t*>(address);
  }
  ~Mapping() { ::munmap(const_cast<uint8_t*>(data_), size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  const uint8_t* data_;
  size_t size_;
};

class Texts : public TokenSource {
 public:
  explicit Texts(std::span<const fs::path> files) {
    check(!files.empty(), "no text files were given");
    for (const fs::path& file : files) {
      const auto& mapping = *mappings_.emplace_back(std::make_unique<Mapping>(file));
      ends_.push_back(size() + static_cast<int64_t>(mapping.bytes().size()));
    }
    const size_t others = files.size() - 1;
    name_ = others ? sentence(files[0].string(), " and ", others, " more") : files[0].string();
  }

  std::string name() const override { return name_; }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void read(int64_t begin, std::span<int32_t> out) const override {
    const auto count = static_cast<int64_t>(out.size());
    check(0 <= begin && count <= size() && begin <= size() - count, name_, ": bytes ", begin,
          " to ", begin + count, " of ", size(), " were asked for");
    auto file = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
    while (!out.empty()) {
      const auto bytes = mappings_[file]->bytes();
      const int64_t before = ends_[file] - static_cast<int64_t>(bytes.size());
      const auto here = bytes.subspan(static_cast<size_t>(begin - before));
      const size_t taken = std::min(here.size(), out.size());
      std::ranges::copy(here.first(taken), out.begin());
      out = out.subspan(taken);
      begin = ends_[file++];
    }
  }

 private:
  std::string name_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::vector<int64_t> ends_;  // of each file, in the sequence
};

std::vector<fs::path> matches(const std::string& pattern) {
  struct Found {
    ::glob_t glob = {};
    ~Found() { ::globfree(&glob); }
  } found;
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found.glob);
  check_file(result == 0 || result == GLOB_NOMATCH, pattern, "the folders could not be searched");
  std::vector<fs::path> paths(found.glob.gl_pathv, found.glob.gl_pathv + found.glob.gl_pathc);
  std::ranges::sort(paths);
  return paths;
}

bool has_text(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) > 0;
}

std::vector<fs::path> files_named(const std::string& pattern) {
  std::error_code error;
  const bool is_path = fs::exists(fs::path(pattern), error);
  if (error) fail_file(pattern, "read", error.value());
  if (is_path) {
    check_file(!fs::is_directory(pattern), pattern, "is a directory; name the files in it, as in ",
               (fs::path(pattern) / "*.txt").string());
    return {pattern};
  }
  check_file(pattern.find_first_of("*?[") != std::string::npos, pattern, "there is no such file");
  check_file(pattern.find("**") == std::string::npos, pattern,
             "** is not understood; give a pattern for each depth of folders");
  std::vector<fs::path> paths = matches(pattern);
  check_file(!paths.empty(), pattern, "no file matches");
  std::erase_if(paths, [](const fs::path& path) { return !has_text(path); });
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
  if (has_text(root / "README.md")) files.push_back(root / "README.md");
  for (const char* folder : folders) {
    std::error_code absent;
    for (const fs::path& path : fs::recursive_directory_iterator(root / folder, absent)) {
      if (is_source(path) && has_text(path)) files.push_back(path);
    }
  }
  std::ranges::sort(files);
  check_file(!files.empty(), root.string(),
             "Spool's own texts, which are read when no data is given, are not there; name text "
             "files with --data");
  return files;
}

Tokens open_texts(std::span<const fs::path> files) { return std::make_shared<Texts>(files); }

}  // namespace spool
