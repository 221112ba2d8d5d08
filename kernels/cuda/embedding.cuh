#pragma once

// Launches, loads and sums of the embedding kernels: a warp for each row, or row and tile of
// columns.

#include "spool/kernels/cuda/map.cuh"

namespace spool::cuda {

constexpr int row_warps = 8;

__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * row_warps + threadIdx.x / warp_lanes;
}

inline LaunchShape warp_a_row(int64_t rows, int64_t tiles) {
  return {.grid = dim3(unsigned(ceil_div<int64_t>(rows, row_warps)), unsigned(tiles)),
          .block = dim3(row_warps * warp_lanes)};
}

// n elements, one or a pack, of memory that this launch does not write and may read again; zeros
// unless `in_range`.
template <int n, class T>
__device__ __forceinline__ Raw<n, T> load_cached(const T* from, bool in_range) {
  if constexpr (n == 1) {
    return load_raw<n>(from, in_range);
  } else {
    return Raw<n, T>{{load_bits(from, in_range)}};
  }
}

template <int n>
__device__ __forceinline__ void add_to(Floats<n>& sum, const Floats<n>& x) {
#pragma unroll
  for (int k = 0; k < n; ++k) sum.at[k] += x.at[k];
}
template <int n, class T>
__device__ __forceinline__ void add_to(Floats<n>& sum, const Raw<n, T>& raw) {
  add_to(sum, floats_of(raw));
}

}  // namespace spool::cuda
