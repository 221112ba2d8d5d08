#pragma once

// Reads and writes files through Linux's io_uring, with several pieces in flight: a disk that gets
// one piece at a time is idle in between.  The ring does not explain failures; the caller repeats a
// failed transfer with pread() or pwrite(), which do.  Not thread-safe.

#include <cstddef>
#include <memory>
#include <utility>

struct io_uring;

namespace spool {

enum class Direction { read, write };

// A read or write of consecutive bytes of a file.
struct Transfer {
  Direction direction;
  int descriptor;
  size_t offset;
  std::byte* memory;  // written to by a read, read from by a write
  size_t bytes;
};

class IoRing {
 public:
  // Null if this build lacks liburing, or the system forbids rings, as containers often do.
  static std::unique_ptr<IoRing> make();

  // Returns whether all bytes were transferred.  If not, any part of them may have been, and
  // nothing is in flight any more.
  bool transfer(const Transfer&);

 private:
  struct Exit {
    void operator()(io_uring*) const;
  };
  using Handle = std::unique_ptr<io_uring, Exit>;

  explicit IoRing(Handle ring) : ring_(std::move(ring)) {}
  static Handle open();

  Handle ring_;
};

}  // namespace spool
