#include <limits>

#include "spool/kernels/cuda/embedding.cuh"
#include "spool/kernels/cuda/embedding_sort.cuh"
#include "spool/kernels/embedding.h"

namespace spool {
namespace cuda {
namespace {

constexpr int run = TokenSort::run;
static_assert(run == warp_lanes);

template <class T>
struct GradientRows {
  const T* dy;
  float* sums;  // (runs, C)
  int64_t C;
};

template <int width>
__device__ __forceinline__ int64_t column_of_lane() {
  return (int64_t{blockIdx.y} * warp_lanes + lane_of_warp()) * width;
}

// The column of the lane; lanes beyond the last column repeat the last, so that all lanes do the
// same.
template <int width>
__device__ __forceinline__ int64_t column_in_range(int64_t C) {
  const int64_t c = column_of_lane<width>();
  return c < C ? c : C - width;
}

// sum += the first `count` rows of dy of this warp, in order; `row` of lane i is the number of row
// i.  Several loads are in flight at a time.
template <int width, class T>
__device__ __forceinline__ void add_rows(Floats<width>& sum, const GradientRows<T>& rows, int row,
                                         int count) {
  constexpr int at_once = 4;
  const T* column = rows.dy + column_in_range<width>(rows.C);
  for (int i = 0; i < count; i += at_once) {
    int64_t n[at_once];
    Raw<width, T> x[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) n[j] = __shfl_sync(all_lanes, row, (i + j) % warp_lanes);
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      x[j] = load_raw<width>(column + n[j] * rows.C, i + j < count);
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (i + j >= count) break;
      add_to(sum, x[j]);
    }
  }
}

// Writes where the entries of a token begin and end in the sorted list, by comparing neighbours.
__device__ __forceinline__ void mark_ends(const TokenLists& k, int64_t i, int token) {
  const int lane = lane_of_warp();
  const bool in_range = i < k.N;
  int before = __shfl_up_sync(all_lanes, token, 1);
  int after = __shfl_down_sync(all_lanes, token, 1);
  if (lane == 0) before = in_range && i > 0 ? k.token(__ldg(k.second_order + i - 1)) : -1;
  if (lane == warp_lanes - 1) after = i + 1 < k.N ? k.token(__ldg(k.second_order + i + 1)) : -1;
  if (!in_range || token == k.V) return;
  if (before != token) k.begins[token] = static_cast<int32_t>(i);
  if (after != token) k.ends[token] = static_cast<int32_t>(i + 1);
}

// A warp processes a run of the sorted list: it marks the tokens that begin and end in it, and adds
// up the rows of the run if all have the same token.
template <int width, class T>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    add_runs(TokenLists k, GradientRows<T> rows) {
  const int64_t warp = warp_of_grid(), i = warp * run + lane_of_warp(), c = column_of_lane<width>();
  if (warp * run >= k.N) return;
  const int n = i < k.N ? __ldg(k.second_order + i) : 0, token = i < k.N ? k.token(n) : -1;
  if (blockIdx.y == 0) mark_ends(k, i, token);
  const int first = __shfl_sync(all_lanes, token, 0);
  const int last = __shfl_sync(all_lanes, token, run - 1);
  if (first != last || first == k.V) return;
  Floats<width> sum = {};
  add_rows(sum, rows, n, run);
  if (c < rows.C) store<width>(rows.sums + warp * rows.C + c, sum);
}

// A warp computes a row of the vocabulary: it adds the rows of dy before the first whole run, the
// sums of the whole runs, and the rows after the last.
template <int width, class T, class Out>
__global__ void __launch_bounds__(row_warps* warp_lanes, 4)
    add_lists(Sink<Out> dweight, TokenLists k, GradientRows<T> rows) {
  const int64_t v = warp_of_grid(), c = column_of_lane<width>();
  if (v >= k.V) return;
  const int end = __ldg(k.ends + v);
  Floats<width> sum = {};
  if (end > 0) {
    const int begin = __ldg(k.begins + v), lane = lane_of_warp();
    const int runs_begin = begin / run + (begin % run > 0), runs_end = end / run;
    const auto add_between = [&](int from, int to) {
      add_rows(sum, rows, from + lane < to ? __ldg(k.second_order + from + lane) : 0, to - from);
    };
    add_between(begin, runs_begin <= runs_end ? runs_begin * run : end);
    const float* sums = rows.sums + column_in_range<width>(rows.C);
#pragma unroll 2
    for (int64_t i = runs_begin; i < runs_end; ++i) add_to(sum, load<width>(sums + i * rows.C));
    if (runs_begin <= runs_end) add_between(runs_end * run, end);
  }
  if (c < rows.C && (end > 0 || !dweight.accumulate)) dweight.put(v * rows.C + c, sum);
}

// A warp computes a position: it adds the rows of dy at this position of every sequence.
template <int width, class T, class Out>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    add_sequences(Sink<Out> dpositions, GradientRows<T> rows, int64_t count, int64_t sequence,
                  int64_t N) {
  const int64_t t = warp_of_grid(), c = column_of_lane<width>();
  if (t >= count || c >= rows.C) return;
  if (t >= sequence && dpositions.accumulate) return;
  constexpr int at_once = 8;
  const Raw<width, Out> before = dpositions.template before<width>(t * rows.C + c);
  Floats<width> sum = {};
  for (int64_t first = t < sequence ? t : N; first < N; first += at_once * sequence) {
    Raw<width, T> x[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int64_t n = first + j * sequence;
      x[j] = load_raw<width>(rows.dy + n * rows.C + c, n < N);
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (first + j * sequence >= N) break;
      add_to(sum, x[j]);
    }
  }
  dpositions.put(t * rows.C + c, sum, before);
}

template <int width, class T>
void backward_weight(CudaStream& stream, const EmbeddingBackward& k) {
  const int64_t V = k.dweight.view.shape().rows(), C = k.dy.shape().row();
  const TokenSort sort(k.tokens.numel(), V, C);
  check(sort.digit_bits <= TokenSort::max_digit_bits, "embedding on cuda: a vocabulary of ", V,
        " rows is beyond the maximum of 2^22 - 1");
  check(sort.N <= std::numeric_limits<int32_t>::max() - sort.piece, "embedding: ", sort.N,
        " tokens are too many for one launch; use a smaller batch or shorter sequences");
  const TokenLists lists(sort, k.tokens, k.part, k.workspace.as<int32_t>());
  const GradientRows<T> rows{.dy = k.dy.as<T>(), .sums = k.workspace.as<float>(), .C = C};
  const int64_t tiles = ceil_div<int64_t>(C, warp_lanes * width);
  sort_tokens(stream, lists);
  if (sort.runs > 0) {
    launch_kernel(stream, add_runs<width, T>, warp_a_row(sort.runs, tiles), lists, rows);
  }
  dispatch_gradient<T>(k.dweight.view.dtype(), [&](auto gradient) {
    using Out = decltype(gradient);
    launch_kernel(stream, add_lists<width, T, Out>, warp_a_row(V, tiles), Sink<Out>(k.dweight),
                  lists, rows);
  });
}

template <int width, class T>
void backward_positions(CudaStream& stream, const EmbeddingBackward& k) {
  const int64_t count = k.dpositions.view.shape().rows(), C = k.dy.shape().row();
  const GradientRows<T> rows{.dy = k.dy.as<T>(), .sums = nullptr, .C = C};
  const int64_t tiles = ceil_div<int64_t>(C, warp_lanes * width);
  dispatch_gradient<T>(k.dpositions.view.dtype(), [&](auto gradient) {
    using Out = decltype(gradient);
    launch_kernel(stream, add_sequences<width, T, Out>, warp_a_row(count, tiles),
                  Sink<Out>(k.dpositions), rows, count, k.tokens.shape().row(), k.tokens.numel());
  });
}

template <int width, class T>
void backward(CudaStream& stream, const EmbeddingBackward& k) {
  const auto wanted = [](const Grad& gradient) { return gradient && gradient.view.numel() > 0; };
  if (wanted(k.dweight)) backward_weight<width, T>(stream, k);
  if (wanted(k.dpositions)) backward_positions<width, T>(stream, k);
}

}  // namespace
}  // namespace cuda

void run(const EmbeddingBackward& k, CudaStream& stream) {
  cuda::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t C = k.dy.shape().row();
    const bool wide = cuda::packs<T>(k.dy.as<T>(), C) && cuda::packs<T>(k.dweight.view.data(), 0) &&
                      cuda::packs<T>(k.dpositions.view.data(), 0);
    if (wide) return cuda::backward<cuda::Pack<T>::size, T>(stream, k);
    cuda::backward<1, T>(stream, k);
  });
}

}  // namespace spool
