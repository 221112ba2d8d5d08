#pragma once

// out[c] (+)= sum over n of f(n, c), in two steps: over the rows of a group, then over groups.  The
// functor's f.at<width>(n, c) gives `width` columns; the order of a column's sum does not depend on
// width.

#include <initializer_list>
#include <type_traits>

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/row_groups.h"

namespace spool::cuda {

constexpr int sum_warps = 8, add_warps = 16;

// Adds the sums of a block's warps, in their order, of 32 * width columns from those of `tile` on.
template <int width>
__device__ __forceinline__ void put_partials(const Floats<width>& sum, int64_t tile, int64_t C,
                                             float* partials) {
  SPOOL_SHARED_2D(float, side, sum_warps, warp_lanes* width);
  const int lane = lane_of_warp();
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
#pragma unroll
  for (int k = 0; k < width; ++k) side[warp][k * warp_lanes + lane] = sum.at[k];
  __syncthreads();
  const int place = static_cast<int>(threadIdx.x);
  const int64_t column = (tile * warp_lanes + lane) * width + warp;
  if (place >= warp_lanes * width || column >= C) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < sum_warps; ++w) total += side[w][place];
  partials[column] = total;
}

// Adds f(n, c) of every sum_warps-th row from n to `end`, four of them under way at a time.  A
// product in f is rounded before it is added: nvcc might fuse the two for some of the rows alone.
template <int width, class F>
__device__ __forceinline__ void add_loaded(const F& f, int64_t n, int64_t end, int64_t c,
                                           Floats<width>& sum) {
  constexpr int in_flight = 4;
  for (; n < end; n += in_flight * sum_warps) {
    decltype(f.template load<width>(n, c)) loaded[in_flight];
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      loaded[u] = f.template load<width>(n + u * sum_warps < end ? n + u * sum_warps : n, c);
    }
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const bool in_range = n + u * sum_warps < end;  // a sum, never -0, keeps its bits with + 0
      const Floats<width> x = f.floats(loaded[u]);
#pragma unroll
      for (int k = 0; k < width; ++k) sum.at[k] = __fadd_rn(sum.at[k], in_range ? x.at[k] : 0);
    }
  }
}

// Block (tile, g): partials[g, c] = sum of f(n, c) over the rows n of group g.  f.at<width>(n, c)
// gives the numbers; f.load() and f.floats(), where there are both, keep more loads under way.
template <int width, class F>
__global__ void __launch_bounds__(sum_warps* warp_lanes)
    sum_rows(F f, int64_t N, int64_t C, int64_t rows, float* partials) {
  const int lane = lane_of_warp();
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int64_t c = (int64_t{blockIdx.x} * warp_lanes + lane) * width, begin = blockIdx.y * rows;
  const int64_t end = begin + rows < N ? begin + rows : N;
  Floats<width> sum = {};
  if constexpr (requires { f.template load<width>(begin, c); }) {
    if (c < C) add_loaded<width>(f, begin + warp, end, c, sum);
  } else if (c < C) {
#pragma unroll 4
    for (int64_t n = begin + warp; n < end; n += sum_warps) {
      const Floats<width> x = f.template at<width>(n, c);
#pragma unroll
      for (int k = 0; k < width; ++k) sum.at[k] += x.at[k];
    }
  }
  put_partials<width>(sum, blockIdx.x, C, partials + blockIdx.y * C);
}

// Partial sums of C columns, `stride` from group to group, and their gradient, of T or f32.
template <class T>
struct PartialSums {
  Sink<T> out;
  Sink<float> out_f32;  // one of the two is null
  const float* partials = nullptr;

  PartialSums() = default;
  PartialSums(const Grad& gradient, const float* first) : partials(first) {
    dispatch_gradient<T>(gradient.view.dtype(), [&](auto scalar) {
      if constexpr (std::is_same_v<decltype(scalar), T>) {
        out = Sink<T>(gradient);
      } else {
        out_f32 = Sink<float>(gradient);
      }
    });
  }
};

template <class T>
struct TwoPartialSums {
  PartialSums<T> at[2];
  int64_t C, stride, groups;
};

// Block (tile, i): the i-th gradient[c] (+)= sum over g of its partials[g * stride + c].
template <class T>
__global__ void __launch_bounds__(add_warps* warp_lanes) add_groups(TwoPartialSums<T> all) {
  SPOOL_SHARED_2D(float, side, add_warps, warp_lanes);
  const PartialSums<T> mine = blockIdx.y == 0 ? all.at[0] : all.at[1];
  const int lane = lane_of_warp();
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int64_t c = int64_t{blockIdx.x} * warp_lanes + lane;
  const bool writes = warp == 0 && c < all.C;
  const auto before = mine.out.template before<1>(mine.out.data ? c : 0, writes);
  const auto before_f32 = mine.out_f32.template before<1>(mine.out_f32.data ? c : 0, writes);
  float sum = 0;
  if (c < all.C) {
#pragma unroll 8
    for (int64_t g = warp; g < all.groups; g += add_warps) {
      sum += __ldg(mine.partials + g * all.stride + c);
    }
  }
  side[warp][lane] = sum;
  __syncthreads();
  if (!writes) return;
  Floats<1> total = {};
#pragma unroll
  for (int w = 0; w < add_warps; ++w) total.at[0] += side[w][lane];
  if (mine.out.data) return mine.out.put(c, total, before);
  mine.out_f32.put(c, total, before_f32);
}

// The second step of one gradient, or of two of as many columns, whose partial sums follow each
// other.  T is the type of the values.
template <class T>
void add_up(CudaStream& stream, std::initializer_list<Grad> gradients, const float* partials,
            int64_t stride, int64_t groups) {
  TwoPartialSums<T> all{.at = {}, .C = 0, .stride = stride, .groups = groups};
  unsigned count = 0;
  for (const Grad& gradient : gradients) {
    if (!gradient) continue;
    all.C = gradient.view.numel();
    all.at[count] = PartialSums<T>(gradient, partials + count * all.C);
    ++count;
  }
  if (count == 0) return;
  launch_kernel(stream, add_groups<T>,
                {.grid = dim3(unsigned(ceil_div<int64_t>(all.C, warp_lanes)), count),
                 .block = dim3(add_warps * warp_lanes)},
                all);
}

// Both steps; partials has room for RowGroups(N, C).count times C.
template <class T, class F>
void sum_columns(CudaStream& stream, const F& f, int64_t N, const Grad& gradient, float* partials,
                 bool wide) {
  const int64_t C = gradient.view.numel();
  if (C == 0) return;
  const RowGroups groups(N, C);
  const auto launch_width = [&](auto kernel, int width) {
    const dim3 grid(unsigned(ceil_div<int64_t>(C, warp_lanes * width)), unsigned(groups.count));
    launch_kernel(stream, kernel, {.grid = grid, .block = dim3(sum_warps * warp_lanes)}, f, N, C,
                  groups.rows, partials);
  };
  if (groups.count > 0 && wide) launch_width(sum_rows<Pack<T>::size, F>, Pack<T>::size);
  if (groups.count > 0 && !wide) launch_width(sum_rows<1, F>, 1);
  add_up<T>(stream, {gradient}, partials, C, groups.count);
}

// f(n, c) = x[n, c] for a matrix of C columns.
template <class T>
struct EachValue {
  const T* x;
  int64_t C;
  template <int width>
  __device__ Floats<width> at(int64_t n, int64_t c) const {
    return load<width>(x + n * C + c);
  }
};

}  // namespace spool::cuda
