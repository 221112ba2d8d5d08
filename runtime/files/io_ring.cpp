#include "spool/runtime/files/io_ring.h"

#if SPOOL_URING

#include <liburing.h>

#include <algorithm>
#include <cerrno>

namespace spool {
namespace {

constexpr size_t piece_bytes = size_t{4} << 20;
constexpr unsigned max_pieces = 16;  // in flight

void prepare(io_uring_sqe& entry, const Transfer& whole, size_t begin) {
  const size_t bytes = std::min(piece_bytes, whole.bytes - begin);
  const auto length = static_cast<unsigned>(bytes);
  if (whole.direction == Direction::read) {
    io_uring_prep_read(&entry, whole.descriptor, whole.memory + begin, length,
                       whole.offset + begin);
  } else {
    io_uring_prep_write(&entry, whole.descriptor, whole.memory + begin, length,
                        whole.offset + begin);
  }
  entry.user_data = bytes;
}

}  // namespace

void IoRing::Exit::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

IoRing::Handle IoRing::open() {
  auto ring = std::make_unique<io_uring>();
  if (io_uring_queue_init(max_pieces, ring.get(), 0) != 0) return nullptr;
  return Handle(ring.release());
}

std::unique_ptr<IoRing> IoRing::make() {
  Handle ring = open();
  if (!ring) return nullptr;
  return std::unique_ptr<IoRing>(new IoRing(std::move(ring)));
}

bool IoRing::transfer(const Transfer& whole) {
  if (!ring_) return false;
  size_t begun = 0;         // bytes
  unsigned unfinished = 0;  // pieces in the ring
  bool good = true;
  while ((good && begun < whole.bytes) || unfinished > 0) {
    while (good && begun < whole.bytes && unfinished < max_pieces) {
      prepare(*io_uring_get_sqe(ring_.get()), whole, begun);
      begun += std::min(piece_bytes, whole.bytes - begun);
      ++unfinished;
    }
    const int submitted = io_uring_submit_and_wait(ring_.get(), 1);
    if (submitted < 0 && submitted != -EINTR) good = false;
    for (io_uring_cqe* done = nullptr; io_uring_peek_cqe(ring_.get(), &done) == 0; --unfinished) {
      if (done->res < 0 || static_cast<uint64_t>(done->res) != done->user_data) good = false;
      io_uring_cqe_seen(ring_.get(), done);
    }
    // The kernel may access the caller's memory until the last submitted piece has completed.
    const unsigned not_submitted = io_uring_sq_ready(ring_.get());
    if (!good && not_submitted == unfinished) {
      if (not_submitted > 0) ring_ = open();  // the next transfer must not submit them
      break;
    }
  }
  return good;
}

}  // namespace spool

#else

struct io_uring {};

namespace spool {

void IoRing::Exit::operator()(io_uring* ring) const { delete ring; }
std::unique_ptr<IoRing> IoRing::make() { return nullptr; }
bool IoRing::transfer(const Transfer&) { return false; }

}  // namespace spool

#endif
