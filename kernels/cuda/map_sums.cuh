#pragma once

// Sums of the terms of a gradient of map() over a row, or over all elements, in f64.  A sum is that
// of 256 threads, each of which adds every 256th term, and has the same bits by a warp that moves
// eight terms at a time: lane l has the sums of threads 8 l to 8 l + 7.

#include "spool/kernels/cuda/map_source.cuh"

namespace spool::cuda {

constexpr int term_block = 256;
constexpr int term_groups = term_block / warp_lanes;  // warps, of which each has a sum of its own

// The sum over the lanes' eights, added as block_sum() adds those of 256 threads.
__device__ __forceinline__ double sum_of_eights(double (&mine)[map_width]) {
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2) {  // 16 and 8 threads further
#pragma unroll
    for (double& x : mine) x += __shfl_xor_sync(all_lanes, x, offset);
  }
#pragma unroll
  for (int half = map_width / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) mine[i] += mine[i + half];
  }
  double sum = 0;
#pragma unroll
  for (int group = 0; group < term_groups; ++group) {
    sum += __shfl_sync(all_lanes, mine[0], group * warp_lanes / map_width);
  }
  return sum;
}

// The sum of terms [begin, end), a multiple of eight, by a warp; load(i) has eight terms' values,
// of which four of a lane are under way at a time, and floats(values) their terms.
template <class Load, class ToFloats>
__device__ __forceinline__ double sum_by_warp(int64_t begin, int64_t end, const Load& load,
                                              const ToFloats& floats) {
  constexpr int in_flight = 4;
  double mine[map_width] = {};
  for (int64_t i = begin + lane_of_warp() * map_width; i < end; i += in_flight * term_block) {
    decltype(load(i)) loaded[in_flight];
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      loaded[u] = load(i + u * term_block < end ? i + u * term_block : i);
    }
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const bool in_range = i + u * term_block < end;  // a sum, never -0, keeps its bits with + 0
      const Floats<map_width> terms = floats(loaded[u]);
#pragma unroll
      for (int k = 0; k < map_width; ++k) mine[k] += in_range ? terms.at[k] : 0;
    }
  }
  return sum_of_eights(mine);
}

// Row r's sum of the terms, by block r, or by a warp if terms move by eights.
template <bool by_eights, class Term, class Out>
__global__ void __launch_bounds__(term_block) sum_of_row(Term term, int64_t rows, Sink<Out> dx) {
  const int64_t columns = term.terms.columns;
  double sum = 0;
  int64_t row = blockIdx.x;
  int member = static_cast<int>(threadIdx.x);
  if constexpr (by_eights) {
    row = row * term_groups + member / warp_lanes;
    member = lane_of_warp();
    if (row >= rows) return;
    sum = sum_by_warp(
        0, columns, [&](int64_t c) { return term.template load<map_width>(row, c); },
        [&](const auto& loaded) { return term.floats(loaded); });
  } else {
    SPOOL_SHARED(double, scratch, warp_lanes);
    for (int64_t c = member; c < columns; c += term_block) sum += term.template at<1>(row, c).at[0];
    sum = block_sum(sum, scratch);
  }
  if (member == 0) dx.put(row, Floats<1>{{static_cast<float>(sum)}});
}

// Block b's sum over piece b of all terms, of a warp if terms move by eights.
template <bool by_eights, class Term>
__global__ void __launch_bounds__(term_block)
    sum_of_piece(Term term, int64_t count, int64_t piece, double* partials) {
  const int64_t columns = term.terms.columns, begin = int64_t{blockIdx.x} * piece;
  const int64_t end = count - begin < piece ? count : begin + piece;
  double sum = 0;
  if constexpr (by_eights) {
    sum = sum_by_warp(
        begin, end,
        [&](int64_t i) {
          const Place place(i, columns);
          return term.template load<map_width>(place.row, place.column);
        },
        [&](const auto& loaded) { return term.floats(loaded); });
  } else {
    SPOOL_SHARED(double, scratch, warp_lanes);
    for (int64_t i = begin + threadIdx.x; i < end; i += term_block) {
      const Place place(i, columns);
      sum += term.template at<1>(place.row, place.column).at[0];
    }
    sum = block_sum(sum, scratch);
  }
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class Out>
__global__ void __launch_bounds__(term_block)
    sum_of_pieces(const double* partials, int64_t count, Sink<Out> dx) {
  SPOOL_SHARED(double, scratch, warp_lanes);
  double mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += term_block) mine += partials[i];
  const double sum = block_sum(mine, scratch);
  if (threadIdx.x == 0) dx.put(0, Floats<1>{{static_cast<float>(sum)}});
}

}  // namespace spool::cuda
