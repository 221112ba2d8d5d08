#pragma once

// One launch over many tensors: a table of them, passed by value, and blocks that each have a piece
// of one of them.

#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {

// What a launch can pass with any driver.
constexpr size_t max_parameter_bytes = 4096;

// Entry has `unsigned first`, its first block.
template <class Entry, int most>
struct Table {
  Entry at[most];
  int count = 0;

  void add(const Entry& entry) { at[count++] = entry; }

  // The entry that a block has its piece of: the last whose first block is not beyond it.
  __device__ __forceinline__ const Entry& of_block(unsigned block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (at[middle].first <= block) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return at[low];
  }
};

}  // namespace spool::cuda
