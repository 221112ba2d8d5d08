#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

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

void read(const std::function<void()>& reader) {
  try {
    reader();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace spool::fuzz
