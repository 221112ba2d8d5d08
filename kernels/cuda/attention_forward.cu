// A block computes a tile of queries of one head; it loops over the tiles of keys that they see
// under a running maximum.  Tiles that see the most keys go first.

#include "spool/kernels/cuda/attention_forward.cuh"
#include "spool/kernels/functions.h"

namespace spool::cuda {
namespace {

template <class S>
struct ForwardTile {
  // For each row: y before the division, the largest score so far, and this thread's part of the
  // sum of the weights.
  Accumulator<S> y;
  float largest[S::R], sum[S::R];

  __device__ ForwardTile() {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      largest[i] = -3e38f;  // finite, so that keys that a query does not see weigh 0 from the start
      sum[i] = 0;
#pragma unroll
      for (int d = 0; d < S::D / side; ++d) y[i][d] = 0;
    }
  }

  // Turns scores into weights.  Row r of the tile sees the columns up to r + own, and the first
  // `common` ones.
  __device__ void weigh(float (&s)[S::R][S::C], int own, int common) {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      const int seen = max(thread_row() * S::R + i + own, common - 1);
      float next = largest[i];
#pragma unroll
      for (int j = 0; j < S::C; ++j) {
        if (thread_column() + j * side > seen) s[i][j] = -INFINITY;
        next = fmaxf(next, s[i][j]);
      }
#pragma unroll
      for (int lanes = side / 2; lanes > 0; lanes /= 2) {
        next = fmaxf(next, __shfl_xor_sync(all_lanes, next, lanes));
      }
      const float correction = math::fast_exp(largest[i] - next);
      largest[i] = next;
      sum[i] *= correction;
#pragma unroll
      for (int j = 0; j < S::C; ++j) sum[i] += s[i][j] = math::fast_exp(s[i][j] - next);
#pragma unroll
      for (int d = 0; d < S::D / side; ++d) y[i][d] *= correction;
    }
  }

  // Hides the keys before the first of each row; keys of the tile begin at `key`.
  __device__ void hide(float (&s)[S::R][S::C], const int* firsts, int64_t key) const {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      const int from = place_in<S::columns>(firsts[thread_row() * S::R + i] - key);
#pragma unroll
      for (int j = 0; j < S::C; ++j) {
        if (thread_column() + j * side < from) s[i][j] = -INFINITY;
      }
    }
  }

  // Divides y by the sum of weights, and sets lse to log sum exp of each row.
  __device__ void finish(float (&lse)[S::R]) {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      float all = sum[i];
#pragma unroll
      for (int lanes = side / 2; lanes > 0; lanes /= 2) {
        all += __shfl_xor_sync(all_lanes, all, lanes);
      }
      lse[i] = largest[i] + logf(all);
#pragma unroll
      for (int d = 0; d < S::D / side; ++d) y[i][d] /= all;
    }
  }
};

template <class S>
constexpr size_t forward_shared = (S::row_tile + 2 * S::column_tile + S::weights_tile) *
                                  sizeof(float);

// The first key that a tile of queries sees.  Those of each query are copied to shared memory.
template <class S, class T>
__device__ int64_t first_key(const ForwardHeads<T>& all, int64_t b, int64_t begin, int* firsts) {
  if (all.text_first) {
    const int own = static_cast<int>(all.past + begin), first = max(__ldg(all.text_first + b), 0);
    const int r = static_cast<int>(threadIdx.x);
    if (r < S::rows) firsts[r] = min(first, own + r);
    return min(first, own);
  }
  if (!all.first) return 0;
  const int* const of_text = all.first + b * all.length;
  load_firsts<S::rows>(firsts, of_text, begin, all.length);
  return min_first(of_text, begin, min(begin + S::rows, all.length));
}

template <class S, class T>
__global__ void __launch_bounds__(tile_block, 2) attention_forward_kernel(ForwardHeads<T> all) {
  SPOOL_SHARED_DYNAMIC(float, queries);
  float* const keys = queries + S::row_tile;
  float* const values = keys + S::column_tile;
  float* const weights = values + S::column_tile;
  const int64_t heads = all.B * all.H, place = blockIdx.x % heads;
  const int64_t b = place / all.H, h = place % all.H, kv = h / all.group;
  const int64_t tile = gridDim.x / heads - 1 - blockIdx.x / heads, begin = tile * S::rows;
  const int count = static_cast<int>(min(int64_t{S::rows}, all.length - begin));
  const int64_t seen = max(all.past + begin + count, all.common);
  const int D = all.D, whole = ceil_div(D, 4) * 4;

  load_tile<S::rows, S::stride>(queries, all.queries.rows(b, h), begin,
                                {.count = count, .D = D, .fours = all.fours, .factor = all.scale});
  ForwardTile<S> rows;
  SPOOL_SHARED(int, firsts, S::rows);
  const int64_t from = first_key<S>(all, b, begin, firsts);
  for (int64_t first = from; first < seen; first += S::columns) {
    const TileLoad load{.count = static_cast<int>(min(int64_t{S::columns}, seen - first)),
                        .D = D,
                        .fours = all.fours};
    __syncthreads();
    load_tile<S::columns, S::stride>(keys, all.keys.rows(b, kv), first, load);
    load_tile<S::columns, S::stride>(values, all.values.rows(b, kv), first, load);
    __syncthreads();
    float s[S::R][S::C];
    multiply<S>(s, queries, keys, whole);
    if (all.first || all.text_first) rows.hide(s, firsts, first);
    rows.weigh(s, place_in<S::columns>(all.past + begin - first),
               place_in<S::columns>(all.common - first));
    store_weights<S>(weights, s);
    __syncwarp();
    add_weighted<S>(rows.y, weights, values);
  }
  float lse[S::R];
  rows.finish(lse);
  store_tile<S>(all.y.rows(b, h), begin, rows.y, {.count = count, .D = D, .fours = all.fours});
  if (!all.lse || thread_column() != 0) return;
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
    const int r = thread_row() * S::R + i;
    if (r < count) all.lse[place * all.length + begin + r] = lse[i];
  }
}

// Shared memory suffices for two blocks on a multiprocessor of compute capability 8.0, and for one
// of any later.
template <int D>
using ForwardTiling = Tiling<D, D == 256 ? 2 : 4,
                             D == 64    ? 4
                             : D == 128 ? 2
                                        : 1>;

}  // namespace

template <class T>
void launch_forward(const ForwardHeads<T>& all, const CudaStream& stream) {
  if (all.B * all.length == 0) return;
  dispatch_head(all.D, [&](auto head) {
    using S = ForwardTiling<decltype(head)::value>;
    const int64_t tiles = ceil_div<int64_t>(all.length, S::rows);
    launch_kernel(stream, attention_forward_kernel<S, T>,
                  {.grid = dim3(unsigned(tiles * all.B * all.H)),
                   .block = dim3(tile_block),
                   .shared = forward_shared<S>},
                  all);
  });
}

template void launch_forward(const ForwardHeads<float>&, const CudaStream&);
template void launch_forward(const ForwardHeads<__nv_bfloat16>&, const CudaStream&);

void attention_forward(const AttentionForward& k, CudaStream& stream) {
  const AttentionExtents e(k.qkv, k.y, k.heads);
  dispatch(k.qkv.dtype(), [&](auto x) {
    using T = decltype(x);
    launch_forward<T>({.queries = heads_of<const T>(k.qkv, 0, e.D),
                       .keys = heads_of<const T>(k.qkv, e.key(0), e.D),
                       .values = heads_of<const T>(k.qkv, e.value(0), e.D),
                       .y = heads_of<T>(k.y, 0, e.D),
                       .lse = k.lse.as<float>(),
                       .B = e.B,
                       .H = e.H,
                       .group = e.group(),
                       .length = e.T,
                       .common = k.mask == Mask::none ? e.T : 0,
                       .first = k.first ? k.first.as<int32_t>() : nullptr,
                       .D = static_cast<int>(e.D),
                       .fours = by_fours<T>(k.qkv, e.D) && by_fours<T>(k.y, e.D),
                       .scale = static_cast<float>(k.scale)},
                      stream);
  });
}

}  // namespace spool::cuda
