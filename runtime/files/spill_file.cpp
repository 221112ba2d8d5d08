#include "spool/runtime/files/spill_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "spool/runtime/check.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

constexpr size_t max_call_bytes = size_t{1} << 30;  // a system call transfers less than 2 GiB

std::string reason(int error) { return std::generic_category().message(error); }

struct Space {
  size_t needed, free;  // bytes
};

template <class... Parts>
[[noreturn]] void fail_in(const fs::path& directory, Space space, const Parts&... parts) {
  throw Error(ErrorKind::file, sentence(directory.string(), ": ", parts...),
              {.needed = space.needed, .capacity = space.free, .file = directory.string()});
}

enum class Io { ring, sync, cached };

Io io_of_environment() {
  const char* value = std::getenv("SPOOL_IO");
  const std::string_view text = value ? value : "";
  if (text.empty()) return Io::ring;
  if (text == "sync") return Io::sync;
  check(text == "cached", "SPOOL_IO is '", text, "'; set it to sync or cached, or leave it unset");
  return Io::cached;
}

// The largest file that this process may write.
size_t file_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

// The reason for a failure, and a remedy.
std::string explain(Space space, int error) {
  const bool no_space = error == ENOSPC || error == EFBIG;
  // If the limit is not a multiple of a page, O_DIRECT fails with EINVAL there.
  if ((no_space || error == EINVAL) && file_limit() < space.needed) {
    return sentence("this process may write files of at most ", format_bytes(file_limit()),
                    "; raise the limit with 'ulimit -f', or spill less");
  }
  const char* elsewhere = "choose a directory on another disk, or spill less";
  if (error == EDQUOT) return sentence("your quota has no room for it; ", elsewhere);
  if (error == EFBIG && space.free >= space.needed) {
    return sentence("its file system does not support files of that size; ", elsewhere);
  }
  if (no_space) {
    return sentence(format_bytes(space.free), " are free on this disk; make room, ", elsewhere);
  }
  if (error == EIO) return reason(error) + "; the disk may be failing: choose another";
  return reason(error);
}

int open_nameless(const fs::path& directory) {
  const int nameless = ::open(directory.c_str(), O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
  if (nameless >= 0) return nameless;
  // Not every file system supports O_TMPFILE.
  std::string path = (directory / "spool-XXXXXX").string();
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

size_t disk_free(const fs::path& directory) {
  struct statvfs disk = {};
  if (::statvfs(directory.c_str(), &disk) != 0) {
    const int error = errno;
    fail_in(directory, {},
            error == ENOENT ? "there is no such directory; create it, or choose another"
                            : "cannot be examined: " + reason(error));
  }
  if (disk.f_blocks == 0) return SIZE_MAX;  // a tmpfs without a limit, and others
  return static_cast<size_t>(disk.f_bavail) * disk.f_frsize;
}

SpillFile::SpillFile(const fs::path& directory, size_t bytes, std::byte* trial)
    : directory_(directory), size_(bytes) {
  check(bytes > 0 && bytes % alignment == 0, "a spill file of ", bytes,
        " bytes: its size must be a positive multiple of ", alignment);
  const size_t free = disk_free(directory);
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    fail_in(directory, {.needed = bytes, .free = free},
            "is not a directory; choose a directory for the spill file");
  }
  if (free < bytes) fail_to_reserve(ENOSPC);
  descriptor_ = open_nameless(directory);
  if (descriptor_ < 0) {
    const int error = errno;
    fail_in(directory, {.needed = bytes, .free = free},
            "no spill file can be created in it: ", reason(error),
            "; choose a directory that you can write to");
  }
  try {
    reserve();
    alignas(alignment) std::array<std::byte, alignment> own;
    choose_method(trial ? trial : own.data());
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SpillFile::~SpillFile() { ::close(descriptor_); }

// On a file system that cannot reserve space, sets only the size; the constructor has checked that
// enough is free.
void SpillFile::reserve() {
  int error = EFBIG;
  if (size_ <= static_cast<size_t>(INT64_MAX)) {
    const auto length = static_cast<off_t>(size_);
    do {
      error = ::fallocate(descriptor_, 0, 0, length) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == EOPNOTSUPP || error == ENOSYS) {
      error = ::ftruncate(descriptor_, length) == 0 ? 0 : errno;
    }
  }
  if (error != 0) fail_to_reserve(error);
}

void SpillFile::fail_to_reserve(int error) const {
  const Space space{.needed = size_, .free = disk_free(directory_)};
  fail_in(directory_, space, "a spill file of ", format_bytes(size_),
          " cannot be created: ", explain(space, error));
}

// Tries each method, as some file systems and kernels do not say what they support.
void SpillFile::choose_method(std::byte* page) {
  const Io io = io_of_environment();
  std::fill_n(page, alignment, std::byte{0});
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (io != Io::cached && ::fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0) {
    direct_ = ::pwrite(descriptor_, page, alignment, 0) == ssize_t{alignment};
    if (!direct_) ::fcntl(descriptor_, F_SETFL, flags);
  }
  if (io != Io::ring) return;
  const auto trial = [&](Direction direction) {
    auto ring = IoRing::make();
    const bool works = ring && ring->transfer({.direction = direction,
                                               .descriptor = descriptor_,
                                               .offset = 0,
                                               .memory = page,
                                               .bytes = alignment});
    return works ? std::move(ring) : nullptr;
  };
  writing_.ring = trial(Direction::write);
  if (writing_.ring) reading_.ring = trial(Direction::read);
  if (!reading_.ring) writing_.ring.reset();
}

std::string SpillFile::description() const {
  return sentence(writing_.ring ? "io_uring" : "pread/pwrite", ", ",
                  direct_ ? "O_DIRECT" : "page cache");
}

void SpillFile::write(size_t offset, const std::byte* from, size_t bytes) {
  transfer(writing_, {.direction = Direction::write,
                      .descriptor = descriptor_,
                      .offset = offset,
                      .memory = const_cast<std::byte*>(from),
                      .bytes = bytes});
}

void SpillFile::read(size_t offset, std::byte* to, size_t bytes) {
  transfer(reading_, {.direction = Direction::read,
                      .descriptor = descriptor_,
                      .offset = offset,
                      .memory = to,
                      .bytes = bytes});
}

void SpillFile::check_bounds(const Transfer& t) const {
  const char* what = t.direction == Direction::read ? "reading " : "writing ";
  check(t.offset % alignment == 0 && t.bytes % alignment == 0, what, t.bytes, " bytes at byte ",
        t.offset, " of a spill file: both must be multiples of ", alignment);
  check(reinterpret_cast<uintptr_t>(t.memory) % alignment == 0, what, "a spill file: memory at ",
        static_cast<const void*>(t.memory), " does not begin at a multiple of ", alignment,
        " bytes");
  check(t.offset <= size_ && t.bytes <= size_ - t.offset, what, t.bytes, " bytes at byte ",
        t.offset, " of a spill file that has ", size_);
}

void SpillFile::transfer(Channel& channel, const Transfer& t) {
  check_bounds(t);
  const std::lock_guard one_at_a_time(channel.busy);
  if (!channel.ring || !channel.ring->transfer(t)) transfer_without_ring(t);
}

void SpillFile::transfer_without_ring(Transfer left) const {
  const Transfer whole = left;
  while (left.bytes > 0) {
    const size_t bytes = std::min(left.bytes, max_call_bytes);
    const auto offset = static_cast<off_t>(left.offset);
    const bool reads = left.direction == Direction::read;
    const ssize_t n = reads ? ::pread(left.descriptor, left.memory, bytes, offset)
                            : ::pwrite(left.descriptor, left.memory, bytes, offset);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail_transfer(whole, errno);
    // O_DIRECT cannot continue within a page, so a partial page counts as not transferred.
    const size_t done = static_cast<size_t>(n) / alignment * alignment;
    if (done == 0) fail_transfer(whole, reads ? EIO : ENOSPC);
    left.offset += done;
    left.memory += done;
    left.bytes -= done;
  }
}

void SpillFile::fail_transfer(const Transfer& t, int error) const {
  const Space space{.needed = size_, .free = disk_free(directory_)};
  const char* done = t.direction == Direction::read ? "read" : "written";
  fail_in(directory_, space, format_bytes(t.bytes), " at byte ", t.offset, " of a spill file of ",
          format_bytes(size_), " cannot be ", done, ": ", explain(space, error));
}

}  // namespace spool
