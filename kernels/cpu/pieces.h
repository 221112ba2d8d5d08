#pragma once

// A loop over the elements of many tensors, in pieces of `grain` elements of one tensor each.
// Pieces are numbered across all tensors, so threads share them all in one loop.

#include <algorithm>
#include <array>

#include "spool/kernels/launch.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {

template <int max_tensors>
class Pieces {
 public:
  explicit Pieces(int64_t grain) : grain_(grain) {}

  // Adds a tensor of `numel` elements.
  void add(int64_t numel) {
    numels_[count_] = numel;
    first_[count_ + 1] = first_[count_] + ceil_div(numel, grain_);
    ++count_;
  }
  int64_t total() const { return first_[count_]; }

  // Calls body(tensor, begin, end, piece) for each piece, shared by the threads.
  template <class Body>
  void for_each(CpuStream& stream, const Body& body) const {
    stream.parallel_for(total(), 1, [&](int64_t piece, int64_t) {
      const auto* after = std::upper_bound(first_.data(), first_.data() + count_ + 1, piece);
      const auto tensor = static_cast<size_t>(after - first_.data() - 1);
      const int64_t begin = (piece - first_[tensor]) * grain_;
      body(tensor, begin, std::min(begin + grain_, numels_[tensor]), piece);
    });
  }

 private:
  int64_t grain_;
  size_t count_ = 0;
  std::array<int64_t, max_tensors> numels_{};
  std::array<int64_t, max_tensors + 1> first_{};
};

}  // namespace spool::cpu
