#pragma once

// A SpillFile is memory on disk: a file without a name in a directory, of a size that is reserved
// when it is made, to which pieces of memory are written and read back.  It is gone when it is
// closed, even by a crash, and its content is never made durable.
//
// It goes around the page cache (O_DIRECT) where the file system can, since what is spilled is
// larger than the memory that is left, and asks for several pieces at a time (io_uring) where the
// system lets it.  description() says what it came to.  In the environment, SPOOL_IO=sync keeps it
// to pread() and pwrite(), and SPOOL_IO=cached to these through the page cache, for comparison.
//
// A process whose files are limited (ulimit -f) must ignore SIGXFSZ, or the system ends it at the
// limit; spool does.
//
// Every failure is an Error (file) whose fields have the directory, the bytes that were needed and
// those that are free.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "spool/runtime/files/io_ring.h"

namespace spool {

class SpillFile {
 public:
  static constexpr size_t alignment = 4096;  // of offsets, sizes and memory

  // Throws where the directory is missing or cannot be written to, or its disk has not that much.
  SpillFile(const std::filesystem::path& directory, size_t bytes);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  size_t size() const { return size_; }
  const std::filesystem::path& directory() const { return directory_; }
  // "io_uring, O_DIRECT", "pread/pwrite, page cache": how bytes travel.
  std::string description() const;

  // Both return when it is done, and may be called by any thread.  A read and a write go on at the
  // same time, two of a kind one after the other.  What a read finds that overlaps a write of the
  // same time is undefined, as is what was never written.
  void write(size_t offset, const std::byte* from, size_t bytes);
  void read(size_t offset, std::byte* to, size_t bytes);

 private:
  struct Lane {
    std::mutex busy;
    std::unique_ptr<IoRing> ring;
  };

  void reserve();
  [[noreturn]] void fail_to_reserve(int error) const;
  void choose_way();
  void check_piece(const Transfer&) const;
  void transfer(Lane&, const Transfer&);
  void transfer_in_turn(Transfer) const;
  [[noreturn]] void fail_transfer(const Transfer&, int error) const;

  std::filesystem::path directory_;
  size_t size_;
  int descriptor_ = -1;
  bool direct_ = false;
  Lane reading_, writing_;
};

// What a file in this directory may still take up, by whoever runs this; SIZE_MAX where its file
// system does not say.
size_t disk_free(const std::filesystem::path& directory);

}  // namespace spool
