#include "spool/runtime/files/input_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace spool {

InputFile::InputFile(File file, std::string name)
    : file_(std::move(file)), name_(std::move(name)), begin_(state()) {}

InputFile::State InputFile::state() const {
  constexpr int64_t nanoseconds = 1'000'000'000;
  struct stat status = {};
  if (::fstat(file_.descriptor(), &status) != 0) fail_file(name_, "examined", errno);
  return {.size = static_cast<uint64_t>(status.st_size),
          .modified = status.st_mtim.tv_sec * nanoseconds + status.st_mtim.tv_nsec};
}

void InputFile::read(uint64_t begin, std::span<std::byte> out) const {
  try {
    file_.read(begin, out);
  } catch (const Error&) {
    const uint64_t now = file_.size();
    check_file(now >= size(), name_, "had ", size(), " bytes when it was opened, and has ", now,
               " now; make it again what it was, and let nothing write to it while it is read");
    throw;
  }
}

}  // namespace spool
