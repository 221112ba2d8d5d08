// Three kernels, without atomics, so that every sum has a fixed order: one computes delta, one dq,
// and one dk and dv, the last two from delta.  In these a block computes a tile of rows of one head
// and loops over the tiles of the other side; blocks with the most tiles go first.

#include "spool/kernels/cuda/attention_tiles.cuh"
#include "spool/kernels/functions.h"

namespace spool::cuda {
namespace {

template <class T, class G>
struct BackwardHeads {
  HeadArray<const T> queries, keys, values, dy;
  HeadArray<G> dqueries, dkeys, dvalues;
  const float *lse, *delta;  // (B, H, length)
  int64_t B, H, Hkv, length;
  int64_t common;    // the first keys, which every query sees beside those up to its own
  const int* first;  // (B, length): the first key that a query sees; or null
  int D;
  bool fours, fours_out, accumulate;
  float scale;

  __device__ const int* firsts(int64_t b) const { return first ? first + b * length : nullptr; }
  __device__ int64_t group() const { return H / Hkv; }
  __device__ int whole() const { return ceil_div(D, 4) * 4; }  // D and the zeros that pad a row
  __device__ int count(int64_t begin, int max_rows) const {
    return static_cast<int>(min(int64_t{max_rows}, length - begin));
  }
  __device__ TileLoad load(int64_t begin, int max_rows, float factor) const {
    return {.count = count(begin, max_rows), .D = D, .fours = fours, .factor = factor};
  }
  __device__ TileStore store(int64_t begin, int max_rows) const {
    return {.count = count(begin, max_rows), .D = D, .fours = fours_out, .accumulate = accumulate};
  }
};

template <class S>
__device__ void clear(Accumulator<S>& sum) {
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
#pragma unroll
    for (int d = 0; d < S::D / side; ++d) sum[i][d] = 0;
  }
}

// A query's values for differentiating its scores.  A query beyond the last gives all keys a weight
// of 0.
struct QueryRow {
  float lse, delta;
};
template <class T, class G>
__device__ QueryRow query_row(const BackwardHeads<T, G>& all, int64_t head, int64_t i) {
  if (i >= all.length) return {INFINITY, 0};
  const int64_t at = head * all.length + i;
  return {all.lse[at], all.delta[at]};
}

// Turns the score s into p, and ds, which is dy times value, into the derivative of the score.
__device__ __forceinline__ void differentiate(float& s, float& ds, const QueryRow& query,
                                              bool seen) {
  s = seen ? math::fast_exp(s - query.lse) : 0;
  ds = seen ? s * (ds - query.delta) : 0;
}

// A tile of queries, and the current tile of keys.
template <class S, class T, class G>
struct QueryTile {
  const BackwardHeads<T, G>& all;
  float *queries, *dy, *keys, *values, *weights;
  const int* firsts;  // of the queries
  int64_t place, b, h, begin;
  QueryRow rows[S::R];
  Accumulator<S> dqueries;

  __device__ QueryTile(const BackwardHeads<T, G>& heads, float* memory, int* own_firsts)
      : all(heads),
        queries(memory),
        dy(queries + S::row_tile),
        keys(dy + S::row_tile),
        values(keys + S::column_tile),
        weights(values + S::column_tile),
        firsts(own_firsts),
        place(blockIdx.x % (all.B * all.H)),
        b(place / all.H),
        h(place % all.H),
        begin((gridDim.x - 1 - blockIdx.x) / (all.B * all.H) * S::rows) {
    clear<S>(dqueries);
    load_tile<S::rows, S::stride>(queries, all.queries.rows(b, h), begin,
                                  all.load(begin, S::rows, all.scale));
    load_tile<S::rows, S::stride>(dy, all.dy.rows(b, h), begin, all.load(begin, S::rows, 1));
#pragma unroll
    for (int i = 0; i < S::R; ++i) rows[i] = query_row(all, place, query(i));
    if (all.first) load_firsts<S::rows>(own_firsts, all.firsts(b), begin, all.length);
  }
  __device__ int64_t query(int i) const { return begin + thread_row() * S::R + i; }

  // Adds the terms of the tile of keys from `first` on.
  __device__ void add_keys(int64_t first) {
    const int64_t kv = h / all.group();
    __syncthreads();
    const TileLoad load = all.load(first, S::columns, 1);
    load_tile<S::columns, S::stride>(keys, all.keys.rows(b, kv), first, load);
    load_tile<S::columns, S::stride>(values, all.values.rows(b, kv), first, load);
    __syncthreads();
    float s[S::R][S::C], ds[S::R][S::C];
    multiply<S>(s, queries, keys, all.whole());
    multiply<S>(ds, dy, values, all.whole());
    if (all.first) hide(s, first);
    const int own = place_in<S::columns>(begin - first),
              common = place_in<S::columns>(all.common - first);
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      const int last = max(thread_row() * S::R + i + own, common - 1);
#pragma unroll
      for (int j = 0; j < S::C; ++j) {
        differentiate(s[i][j], ds[i][j], rows[i], thread_column() + j * side <= last);
      }
    }
    store_weights<S>(weights, ds);
    __syncwarp();
    add_weighted<S>(dqueries, weights, keys);
  }

  // Hides the keys before the first of each query; keys of the tile begin at `key`.
  __device__ void hide(float (&s)[S::R][S::C], int64_t key) const {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
      const int from = place_in<S::columns>(firsts[thread_row() * S::R + i] - key);
#pragma unroll
      for (int j = 0; j < S::C; ++j) {
        if (thread_column() + j * side < from) s[i][j] = -INFINITY;
      }
    }
  }

  __device__ void write() {
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
#pragma unroll
      for (int d = 0; d < S::D / side; ++d) dqueries[i][d] *= all.scale;
    }
    store_tile<S>(all.dqueries.rows(b, h), begin, dqueries, all.store(begin, S::rows));
  }
};

template <class S, class T, class G>
__global__ void __launch_bounds__(tile_block, 2) dqueries_kernel(BackwardHeads<T, G> all) {
  SPOOL_SHARED_DYNAMIC(float, memory);
  SPOOL_SHARED(int, firsts, S::rows);
  QueryTile<S, T, G> tile(all, memory, firsts);
  const int64_t end = max(min(tile.begin + S::rows, all.length), all.common);
  const int64_t from =
      min_first(all.firsts(tile.b), tile.begin, min(tile.begin + S::rows, all.length));
  for (int64_t first = from; first < end; first += S::columns) tile.add_keys(first);
  tile.write();
}

// A tile of keys, and the current tile of queries.
template <class S, class T, class G>
struct KeyTile {
  const BackwardHeads<T, G>& all;
  float *keys, *values, *queries, *dy, *weights, *dweights;
  int* firsts;  // of the tile of queries
  int b, kv, begin;
  Accumulator<S> dkeys, dvalues;

  __device__ KeyTile(const BackwardHeads<T, G>& heads, float* memory, int* their_firsts)
      : all(heads),
        keys(memory),
        values(keys + S::row_tile),
        queries(values + S::row_tile),
        dy(queries + S::column_tile),
        weights(dy + S::column_tile),
        dweights(weights + S::weights_tile),
        firsts(their_firsts),
        b(static_cast<int>(blockIdx.x / all.Hkv % all.B)),
        kv(static_cast<int>(blockIdx.x % all.Hkv)),
        begin(static_cast<int>(blockIdx.x / (all.Hkv * all.B)) * S::rows) {
    clear<S>(dkeys);
    clear<S>(dvalues);
    const TileLoad load = all.load(begin, S::rows, 1);
    load_tile<S::rows, S::stride>(keys, all.keys.rows(b, kv), begin, load);
    load_tile<S::rows, S::stride>(values, all.values.rows(b, kv), begin, load);
  }

  // Adds the terms of the tile of queries of head h from `first` on.
  __device__ void add_queries(int h, int first) {
    __syncthreads();
    load_tile<S::columns, S::stride>(queries, all.queries.rows(b, h), first,
                                     all.load(first, S::columns, all.scale));
    load_tile<S::columns, S::stride>(dy, all.dy.rows(b, h), first, all.load(first, S::columns, 1));
    if (all.first) load_firsts<S::columns>(firsts, all.firsts(b), first, all.length);
    __syncthreads();
    float s[S::R][S::C], ds[S::R][S::C];
    multiply<S>(s, keys, queries, all.whole());
    multiply<S>(ds, values, dy, all.whole());
    if (all.first) hide(s);
    const int own = place_in<S::rows>(first - begin),
              common = place_in<S::rows>(all.common - begin);
#pragma unroll
    for (int j = 0; j < S::C; ++j) {
      const int column = thread_column() + j * side;
      const QueryRow row = query_row(all, int64_t{b} * all.H + h, first + column);
      const int last = max(column + own, common - 1);
#pragma unroll
      for (int i = 0; i < S::R; ++i) {
        differentiate(s[i][j], ds[i][j], row, thread_row() * S::R + i <= last);
      }
    }
    store_weights<S>(weights, s);
    store_weights<S>(dweights, ds);
    __syncwarp();
    add_weighted<S>(dvalues, weights, dy);
    add_weighted<S>(dkeys, dweights, queries);
  }

  // One past the last query that sees any of the keys.
  __device__ int end_query() const {
    if (!all.first) return static_cast<int>(all.length);
    return end_of_queries<tile_block>(all.firsts(b), begin, begin + S::rows, all.length);
  }

  // Hides the keys before the first of each query.
  __device__ void hide(float (&s)[S::R][S::C]) const {
#pragma unroll
    for (int j = 0; j < S::C; ++j) {
      const int from = place_in<S::rows>(firsts[thread_column() + j * side] - begin);
#pragma unroll
      for (int i = 0; i < S::R; ++i) {
        if (thread_row() * S::R + i < from) s[i][j] = -INFINITY;
      }
    }
  }

  __device__ void write() const {
    store_tile<S>(all.dkeys.rows(b, kv), begin, dkeys, all.store(begin, S::rows));
    store_tile<S>(all.dvalues.rows(b, kv), begin, dvalues, all.store(begin, S::rows));
  }
};

template <class S, class T, class G>
__global__ void __launch_bounds__(tile_block, 2) dkeys_kernel(BackwardHeads<T, G> all) {
  static_assert(S::rows % S::columns == 0);
  SPOOL_SHARED_DYNAMIC(float, memory);
  SPOOL_SHARED(int, firsts, S::columns);
  KeyTile<S, T, G> tile(all, memory, firsts);
  const int first_query = tile.begin < all.common ? 0 : tile.begin;
  const int end_query = tile.end_query();
  const int group = static_cast<int>(all.group());
  for (int h = tile.kv * group; h < (tile.kv + 1) * group; ++h) {
    for (int first = first_query; first < end_query; first += S::columns) {
      tile.add_queries(h, first);
    }
  }
  tile.write();
}

constexpr int delta_block = 256, delta_lanes = 8;

// delta[b,h,t] = sum_d dy[b,t,h,d] y[b,t,h,d]; delta_lanes lanes compute each.
template <class T>
__global__ void __launch_bounds__(delta_block)
    delta_kernel(float* delta, const T* dy, const T* y, AttentionExtents e, bool fours) {
  const int lane = static_cast<int>(threadIdx.x) % delta_lanes;
  const int64_t row = (int64_t{blockIdx.x} * delta_block + threadIdx.x) / delta_lanes;
  const bool in_range = row < e.B * e.T * e.H;
  const T *const a = dy + row * e.D, *const b = y + row * e.D;
  float sum = 0;
  if (in_range && fours) {
    for (int64_t d = 4 * lane; d < e.D; d += 4 * delta_lanes) {
      const Four p = load_four(a + d), q = load_four(b + d);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += p.at[k] * q.at[k];
    }
  } else if (in_range) {
    for (int64_t d = lane; d < e.D; d += delta_lanes) sum += to_float(a[d]) * to_float(b[d]);
  }
#pragma unroll
  for (int lanes = delta_lanes / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(all_lanes, sum, lanes);
  }
  if (!in_range || lane != 0) return;
  const int64_t h = row % e.H, t = row / e.H % e.T, b_ = row / e.H / e.T;
  delta[(b_ * e.H + h) * e.T + t] = sum;
}

// The kernel with the most shared memory fits every device of compute capability 8.0 and up.
template <int D>
using BackwardTiling = Tiling<D, D == 256 ? 1 : 4, D == 64 ? 2 : 1>;

template <class S>
constexpr size_t dqueries_shared = (2 * S::row_tile + 2 * S::column_tile + S::weights_tile) *
                                   sizeof(float);
template <class S>
constexpr size_t dkeys_shared = dqueries_shared<S> + S::weights_tile * sizeof(float);

template <class T>
void launch_delta(const AttentionBackward& k, const AttentionExtents& e, const CudaStream& stream) {
  const int64_t rows_each = delta_block / delta_lanes;
  const bool fours = by_fours<T>(k.dy, e.D) && by_fours<T>(k.y, e.D);
  launch_kernel(
      stream, delta_kernel<T>,
      {.grid = dim3(unsigned(ceil_div(e.B * e.T * e.H, rows_each))), .block = dim3(delta_block)},
      k.workspace.as<float>(), k.dy.as<T>(), k.y.as<T>(), e, fours);
}

template <class T, class G>
BackwardHeads<T, G> heads_for(const AttentionBackward& k, const AttentionExtents& e) {
  const View& out = k.dqkv.view;
  return {.queries = heads_of<const T>(k.qkv, 0, e.D),
          .keys = heads_of<const T>(k.qkv, e.key(0), e.D),
          .values = heads_of<const T>(k.qkv, e.value(0), e.D),
          .dy = heads_of<const T>(k.dy, 0, e.D),
          .dqueries = heads_of<G>(out, 0, e.D),
          .dkeys = heads_of<G>(out, e.key(0), e.D),
          .dvalues = heads_of<G>(out, e.value(0), e.D),
          .lse = k.lse.as<float>(),
          .delta = k.workspace.as<float>(),
          .B = e.B,
          .H = e.H,
          .Hkv = e.Hkv,
          .length = e.T,
          .common = k.mask == Mask::none ? e.T : 0,
          .first = k.first ? k.first.as<int32_t>() : nullptr,
          .D = static_cast<int>(e.D),
          .fours = by_fours<T>(k.qkv, e.D) && by_fours<T>(k.dy, e.D),
          .fours_out = by_fours<G>(out, e.D),
          .accumulate = k.dqkv.accumulate,
          .scale = static_cast<float>(k.scale)};
}

template <class T, class G>
void backward(const AttentionBackward& k, const AttentionExtents& e, const CudaStream& stream) {
  const BackwardHeads<T, G> all = heads_for<T, G>(k, e);
  dispatch_head(e.D, [&](auto head) {
    using S = BackwardTiling<decltype(head)::value>;
    const int64_t tiles = e.B * ceil_div<int64_t>(e.T, S::rows);
    launch_kernel(stream, dqueries_kernel<S, T, G>,
                  {.grid = dim3(unsigned(tiles * e.H)),
                   .block = dim3(tile_block),
                   .shared = dqueries_shared<S>},
                  all);
    launch_kernel(stream, dkeys_kernel<S, T, G>,
                  {.grid = dim3(unsigned(tiles * e.Hkv)),
                   .block = dim3(tile_block),
                   .shared = dkeys_shared<S>},
                  all);
  });
}

}  // namespace

void attention_delta(const AttentionBackward& k, CudaStream& stream) {
  const AttentionExtents e(k.qkv, k.y, k.heads);
  dispatch(k.qkv.dtype(), [&](auto x) { launch_delta<decltype(x)>(k, e, stream); });
}

void attention_backward(const AttentionBackward& k, CudaStream& stream) {
  if (!k.dqkv) return;
  const AttentionExtents e(k.qkv, k.y, k.heads);
  if (e.B * e.T == 0) return;
  attention_delta(k, stream);
  dispatch(k.qkv.dtype(), [&](auto x) {
    using T = decltype(x);
    dispatch_gradient<T>(k.dqkv.view.dtype(),
                         [&](auto g) { backward<T, decltype(g)>(k, e, stream); });
  });
}

}  // namespace spool::cuda
