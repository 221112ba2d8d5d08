#pragma once

// Pinned host memory through which uploads pass.  Its two halves take turns: while the device reads
// one, the host fills the other, and waits only where it comes round to a half that is still read.

#include "spool/runtime/cuda/handles.cuh"

namespace spool::cuda {

class Staging {
 public:
  static constexpr size_t half = size_t{4} << 20;  // bytes, the most that is taken at once

  explicit Staging(cudaStream_t stream) : stream_(stream), memory_(2 * half) {}

  // Memory to fill and then copy from, on the stream, before the next call.
  std::byte* take(size_t bytes) {
    if (used_ + bytes > half) turn();
    std::byte* place = memory_.data() + static_cast<size_t>(side_) * half + used_;
    used_ += (bytes + 15) / 16 * 16;
    return place;
  }

 private:
  void turn() {
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
