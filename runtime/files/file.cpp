#include "spool/runtime/files/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

struct stat status_of(const File& file) {
  struct stat status = {};
  if (::fstat(file.descriptor(), &status) != 0) fail_file(file.name(), "examined", errno);
  return status;
}

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) fail_file(path.string(), "read", error.value());
  return type;
}

}  // namespace

void fail_file(const std::string& file, const char* done, int error) {
  const std::string reason = std::generic_category().message(error);
  throw Error(ErrorKind::file, sentence(file, ": cannot be ", done, ": ", reason), {.file = file});
}

bool path_exists(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }

bool path_is_directory(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

File File::open(const fs::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_file(path.string(), "read", errno);
  File file(path.string(), descriptor);
  const mode_t mode = status_of(file).st_mode;
  check_file(!S_ISDIR(mode), file.name(), "is a directory; a file is needed");
  check_file(S_ISREG(mode), file.name(), "is not a regular file");
  return file;
}

File File::create(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_file(path.string(), "written", errno);
  return File(path.string(), descriptor);
}

File File::temporary() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) fail_file("the folder for temporary files, TMPDIR", "used", error.value());
  const int descriptor = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (descriptor >= 0) return File("a temporary file in " + folder.string(), descriptor);
  // Not every file system supports O_TMPFILE.
  std::string path = (folder / "spool-XXXXXX").string();
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) fail_file(path, "written", errno);
  ::unlink(path.c_str());
  return File("a temporary file in " + folder.string(), named);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

uint64_t File::size() const { return static_cast<uint64_t>(status_of(*this).st_size); }

void File::read(uint64_t begin, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(name_, "read", errno);
    check_file(n > 0, name_, "ends at byte ", begin, ", where ", out.size(), " more were expected");
    begin += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
}

void File::write(uint64_t begin, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(name_, "written", errno);
    begin += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void File::sync() {
  if (::fsync(descriptor_) != 0) fail_file(name_, "written", errno);
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_file(name_, "written", errno);
}

std::string read_text_file(const fs::path& path, uint64_t max_bytes) {
  const File file = File::open(path);
  const uint64_t size = file.size();
  check_file(size <= max_bytes, file.name(), "is ", size, " bytes long; at most ", max_bytes,
             " are read");
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void sync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_file(path.string(), "read", errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0) fail_file(path.string(), "written", error);
}

void sync_tree(const fs::path& root) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_symlink()) continue;
    if (entry.is_regular_file() || entry.is_directory()) sync_path(entry.path());
  }
  sync_path(root);
}

AtomicWrite::AtomicWrite(const fs::path& path) : path_(path) {
  std::error_code ignored, error;
  if (fs::is_symlink(path, ignored))
    path_ = fs::weakly_canonical(path, error);  // writes its target
  if (error) fail_file(path.string(), "written", error.value());
  check_file(!fs::is_directory(path_, ignored), path, "is a directory; choose another name");
  check_file(!fs::exists(path_, ignored) || fs::is_regular_file(path_, ignored), path,
             "exists and is not a regular file; choose another name");
  partial_ = path_.parent_path() / sentence(".", path_.filename().string(), ".partial");
  fs::remove_all(partial_, ignored);  // left by a crash
}

AtomicWrite::~AtomicWrite() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void AtomicWrite::commit() {
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    fail_file(path_.string(), "written", errno);
  }
  sync_path(path_.has_parent_path() ? path_.parent_path() : ".");
}

void check_writable(const fs::path& path, SettingKeys keys) {
  try {
    const AtomicWrite probe(path);
    const int descriptor = ::open(probe.path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) fail_file(path.string(), "written", errno);
    ::close(descriptor);
  } catch (const Error& error) {
    ErrorFields fields = error.fields();
    fields.settings = {keys.begin(), keys.end()};
    throw Error(error.kind(), error.what(), fields);
  }
}

void write_text_file_atomically(const fs::path& path, std::string_view text) {
  AtomicWrite partial(path);
  File file = File::create(partial.path());
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  partial.commit();
}

}  // namespace spool
