#pragma once

// A SpillFile extends memory onto a disk: it is a file without a name, in a given directory, whose
// space is reserved when it is created.  The file disappears when it is closed, also after a crash,
// and its content is never made durable.
//
// It bypasses the page cache (O_DIRECT) if the file system can, since spilled data is larger than
// the remaining memory, and has several pieces in flight (io_uring) if the system allows it.
// description() says which are used.  For comparison, SPOOL_IO=sync in the environment limits it to
// pread() and pwrite(), and SPOOL_IO=cached to these through the page cache.
//
// A process with a limit on its files (ulimit -f) must ignore SIGXFSZ, or the system ends it at the
// limit; the program `spool` does.
//
// Every failure is an Error (file) with the directory, the bytes needed and the bytes free as
// fields.

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

  // Throws if the directory is missing or cannot be written to, or its disk has too little space.
  // `trial` is a page of the memory that transfers will use; the constructor writes it once to see
  // which methods work, since not every file system can bypass the page cache for every kind of
  // memory.  Null: a page of its own.
  SpillFile(const std::filesystem::path& directory, size_t bytes, std::byte* trial = nullptr);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  size_t size() const { return size_; }
  const std::filesystem::path& directory() const { return directory_; }
  // How bytes are transferred: "io_uring, O_DIRECT", "pread/pwrite, page cache".
  std::string description() const;

  // Both return when the transfer is done, and may be called by any thread.  A read runs
  // concurrently with a write, but two reads, or two writes, run one after the other.  A read of
  // bytes that are being written, or were never written, is undefined.
  void write(size_t offset, const std::byte* from, size_t bytes);
  void read(size_t offset, std::byte* to, size_t bytes);

 private:
  struct Channel {
    std::mutex busy;
    std::unique_ptr<IoRing> ring;
  };

  void reserve();
  [[noreturn]] void fail_to_reserve(int error) const;
  void choose_method(std::byte* page);
  void check_bounds(const Transfer&) const;
  void transfer(Channel&, const Transfer&);
  void transfer_without_ring(Transfer) const;
  [[noreturn]] void fail_transfer(const Transfer&, int error) const;

  std::filesystem::path directory_;
  size_t size_;
  int descriptor_ = -1;
  bool direct_ = false;
  Channel reading_, writing_;
};

// Bytes that this user may still write to files in the directory; SIZE_MAX if it is unknown.
size_t disk_free(const std::filesystem::path& directory);

}  // namespace spool
