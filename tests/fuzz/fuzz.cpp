#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "spool/runtime/check.h"

namespace spool::fuzz {

std::filesystem::path file_with(Bytes bytes) {
  static const int descriptor = ::memfd_create("input", 0);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, bytes.data(), bytes.size(), 0) != size) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(descriptor);
}

std::filesystem::path file_in_folder(const std::string& name, Bytes bytes) {
  static const struct Folder {
    std::filesystem::path path;
    Folder() {
      std::string name = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
      if (!::mkdtemp(name.data())) std::abort();
      path = name;
    }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  const std::filesystem::path file = folder.path / name;
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file;
}

std::filesystem::path file_in_folder(const std::string& name, std::string_view text) {
  return file_in_folder(name, Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void read(const std::function<void()>& reader) {
  try {
    reader();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace spool::fuzz
