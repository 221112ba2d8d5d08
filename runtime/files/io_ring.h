#pragma once

// Reading and writing a file through Linux's io_uring, several pieces at a time: a disk that is
// asked for one piece after another is idle in between.  The ring does only what goes as asked;
// whatever does not, it leaves to pread() and pwrite(), which say why.  For one thread at a time.

#include <cstddef>
#include <memory>
#include <utility>

struct io_uring;

namespace spool {

enum class Direction { read, write };

// Bytes between memory and a file, from an offset on.
struct Transfer {
  Direction direction;
  int descriptor;
  size_t offset;
  std::byte* memory;  // written to by a read, read from by a write
  size_t bytes;
};

class IoRing {
 public:
  // None where this build is without liburing, or the system forbids rings, as containers often do.
  static std::unique_ptr<IoRing> make();

  // Whether all of it was done.  If not, any part of it may have been; nothing goes on afterwards.
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
