#pragma once

// Pinned host memory for uploads, in two halves: the host fills one while the device reads the
// other, and waits only before it reuses a half that the device still reads.

#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/integer.h"

namespace spool::cuda {

class Staging {
 public:
  static constexpr size_t half = size_t{4} << 20;  // bytes, and the limit of one take()

  explicit Staging(cudaStream_t stream) : stream_(stream), memory_(2 * half) {}

  // Memory to fill and to enqueue a copy from, on the stream, before the next take().
  std::byte* take(size_t bytes) {
    if (used_ + bytes > half) switch_halves();
    std::byte* place = memory_.data() + static_cast<size_t>(side_) * half + used_;
    used_ += round_up<size_t>(bytes, 16);
    return place;
  }

 private:
  void switch_halves() {
    check_call(cudaEventRecord(read_[side_].get(), stream_), "cudaEventRecord");
    side_ = 1 - side_;
    used_ = 0;
    check_call(cudaEventSynchronize(read_[side_].get()), "cudaEventSynchronize");
  }

  cudaStream_t stream_;
  PinnedMemory memory_;
  EventHandle read_[2] = {make_event(), make_event()};
  int side_ = 0;
  size_t used_ = 0;
};

}  // namespace spool::cuda
