// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// out[c] (+)= sum over n of f(n, c), in two steps: over the rows of a group, then over groups.  The
// functor's f.at<width>(n, c) gives `width` columns; the order of a column's sum does not depend on
// width.

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/row_groups.h"

namespace spool::cuda {

constexpr int sum_warps = 8, add_warps = 16;

// Block (tile, g): partials[g, c] = sum of f(n, c) over the rows n of group g.
template <int width, class F>
__global__ void __launch_bounds__(sum_warps* warp_lanes)
    sum_rows(F f, int64_t N, int64_t C, int64_t rows, float* partials) {
  SPOOL_SHARED_2D(float, side, sum_warps, warp_lanes* width);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int64_t first = int64_t{blockIdx.x} * warp_lanes * width;
  const int64_t c = first + lane * width, begin = blockIdx.y * rows;
  const int64_t end = begin + rows < N ? begin + rows : N;
  Floats<width> sum = {};
  if (c < C) {
#pragma unroll 4
    for (int64_t n = begin + warp; n < end; n += sum_warps) {
      const Floats<width> x = f.template at<width>(n, c);
#pragma unroll
      for (int k = 0; k < width; ++k) sum.at[k] += x.at[k];
    }
  }
#pragma unroll
  for (int k = 0; k < width; ++k) side[warp][k * warp_lanes + lane] = sum.at[k];
  __syncthreads();
  const int place = static_cast<int>(threadIdx.x);
  const int64_t column = first + lane * width + warp;
  if (place >= warp_lanes * width || column >= C) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < sum_warps; ++w) total += side[w][place];
  partials[blockIdx.y * C + column] = total;
}

// out[c] (+)= sum over g of partials[g * stride + c].
template <class Out>
__global__ void __launch_bounds__(add_warps* warp_lanes)
    add_groups(Sink<Out> out, const float* partials, int64_t stride, int64_t groups, int64_t C) {
  SPOOL_SHARED_2D(float, side, add_warps, warp_lanes);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int64_t c = int64_t{blockIdx.x} * warp_lanes + lane;
  float sum = 0;
  if (c < C) {
#pragma unroll 8
    for (int64_t g = warp; g < groups; g += add_warps) sum += __ldg(partials + g * stride + c);
  }
  side[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= C) return;
  Floats<1> total = {};
#pragma unroll
  for (int w = 0; w < add_warps; ++w) total.at[0] += side[w][lane];
  out.put(c, total);
}

// The second step.  T is the type of the values.
template <class T>
void add_up(CudaStream& stream, const Grad& gradient, const float* partials, int64_t stride,
            int64_t groups) {
  const int64_t C = gradient.view.numel();
  dispatch_gradient<T>(gradient.view.dtype(), [&](auto scalar) {
    using Out = decltype(scalar);
    launch_kernel(stream, add_groups<Out>,
                  {.grid = dim3(unsigned(ceil_div<int64_t>(C, warp_lanes))),
                   .block = dim3(add_warps * warp_lanes)},
                  Sink<Out>(gradient), partials, stride, groups, C);
  });
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
  add_up<T>(stream, gradient, partials, C, groups.count);
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
