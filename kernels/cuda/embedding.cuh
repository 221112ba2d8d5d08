// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Shared by the embedding kernels: a warp for each row, or for each row and tile of columns.

#include "spool/kernels/cuda/map.cuh"

namespace spool::cuda {

constexpr int row_warps = 8;

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % warp_lanes; }
__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * row_warps + threadIdx.x / warp_lanes;
}

inline LaunchShape warp_a_row(int64_t rows, int64_t tiles) {
  return {.grid = dim3(unsigned(ceil_div<int64_t>(rows, row_warps)), unsigned(tiles)),
          .block = dim3(row_warps * warp_lanes)};
}

// Loads n elements of memory that this launch does not write and may read again.
template <int n, class T>
__device__ __forceinline__ Floats<n> load_cached(const T* from) {
  Floats<n> x;
  if constexpr (n == 1) {
    x.at[0] = to_float(*from);
  } else {
#pragma unroll
    for (int p = 0; p < n; p += Pack<T>::size) {
      const Pack<T> pack = load_pack(from + p);
#pragma unroll
      for (int k = 0; k < Pack<T>::size; ++k) x.at[p + k] = to_float(pack.at[k]);
    }
  }
  return x;
}

// n elements in their type in memory, so that many loads in flight take few registers.
template <int n, class T>
struct alignas(n * sizeof(T)) Raw {
  static_assert(n == 1 || n == Pack<T>::size);
  T at[n];
};
template <int n, class T>
__device__ __forceinline__ Raw<n, T> load_raw(const T* from) {
  Raw<n, T> x;
  if constexpr (n == 1) {
    x.at[0] = *from;
  } else {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));
    memcpy(&x, &bits, sizeof bits);
  }
  return x;
}
template <int n, class T>
__device__ __forceinline__ void add_to(Floats<n>& sum, const Raw<n, T>& x) {
#pragma unroll
  for (int k = 0; k < n; ++k) sum.at[k] += to_float(x.at[k]);
}

template <int n>
__device__ __forceinline__ void add_to(Floats<n>& sum, const Floats<n>& x) {
#pragma unroll
  for (int k = 0; k < n; ++k) sum.at[k] += x.at[k];
}

}  // namespace spool::cuda
