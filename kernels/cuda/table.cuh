#pragma once

// One launch over many tensors: a table of the tensors is passed by value, and each block computes
// a piece of one of them.

#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {

// Bytes of parameters that every driver supports.
constexpr size_t max_parameter_bytes = 4096;

// Entry has `unsigned first`, its first block.
template <class Entry, int max_size>
struct Table {
  Entry at[max_size];
  int count = 0;

  void add(const Entry& entry) { at[count++] = entry; }

  // The entry that this block is for: the last one whose first block is not beyond `block`.
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
