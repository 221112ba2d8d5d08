#pragma once

// Kernels with a team of threads for each row: a warp, eight to a block, for short rows, or a
// block.  Each thread takes every `threads`-th group of n elements.

#include "spool/kernels/cuda/map.cuh"

namespace spool::cuda {

constexpr int team_block = 256;

struct Team {
  int64_t N = 0, C = 0;
  bool is_block = false;

  Team() = default;
  Team(int64_t rows, int64_t columns) : N(rows), C(columns), is_block(columns > 1024) {}

  unsigned blocks() const {
    const int64_t count = is_block ? N : ceil_div<int64_t>(N, team_block / warp_lanes);
    check(count < int64_t{1} << 31, "a kernel on cuda: ", N, " rows are more than a launch takes");
    return static_cast<unsigned>(count);
  }
  // The same for all threads of a team, and past the end for all or none.
  __device__ __forceinline__ int64_t row() const {
    if (is_block) return blockIdx.x;
    return int64_t{blockIdx.x} * (team_block / warp_lanes) + threadIdx.x / warp_lanes;
  }
  __device__ __forceinline__ int member() const {
    return static_cast<int>(threadIdx.x) % (is_block ? team_block : warp_lanes);
  }
  __device__ __forceinline__ int threads() const { return is_block ? team_block : warp_lanes; }

  // Calls use(c, load(c, true)) for this thread's columns, of which c is the first of n.  It loads
  // for several before it uses the first; load(c, false) is for columns that do not exist.
  template <int n, class Load, class Use>
  __device__ __forceinline__ void for_each(Load load, Use use) const {
    constexpr int at_once = 4;
    const int64_t step = int64_t{threads()} * n;
    for (int64_t first = int64_t{member()} * n; first < C; first += at_once * step) {
      decltype(load(first, true)) loaded[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) loaded[j] = load(first + j * step, first + j * step < C);
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        if (first + j * step < C) use(first + j * step, loaded[j]);
      }
    }
  }

  // The sum over the team, in a fixed order; every thread gets it.  `scratch` as of block_sum().
  __device__ __forceinline__ float sum(float x, float* scratch) const {
    return is_block ? block_sum(x, scratch) : warp_sum(x);
  }
  __device__ __forceinline__ float max(float x, float* scratch) const {
    x = warp_max(x);
    if (!is_block) return x;
    if (threadIdx.x % warp_lanes == 0) scratch[threadIdx.x / warp_lanes] = x;
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < team_block / warp_lanes; ++i) x = fmaxf(x, scratch[i]);
    return x;
  }
};

// n elements of each of two tensors.
template <int n, class T>
struct Both {
  Raw<n, T> a, b;
};

// Whether rows of these tensors, all of C columns, move as map_width elements at a time.
template <class... Views>
bool rows_are_wide(int64_t C, const Views&... views) {
  return C % map_width == 0 && (is_aligned(views) && ...);
}

}  // namespace spool::cuda
