// A block computes dk and dv of a tile of keys of one key head; it loops over the tiles of queries
// that see some of them, of each query head that shares the key head in turn, or of a part of these
// (kernels/tensor_attention_sizes.h).  Scores are transposed, s[j,i], as keys are the rows of a
// block here.

#include "spool/kernels/cuda/tensor_attention_backward.cuh"
#include "spool/kernels/tensor_attention_sizes.h"

namespace spool::cuda {
namespace {

// The numbers of a tile of queries, one of each kind per query; two of these follow the tiles in
// shared memory.  Queries beyond the last have zeros: as their q and dy are zeros too, they add
// nothing.  A lane copies the numbers of one query, and a warp those of one kind.
template <class S>
struct QueryNumbers {
  float lse[S::N], delta[S::N];
  int first[S::N];
  static_assert(S::N == warp_lanes && S::warps >= 3);

  __device__ void copy(const TensorBackward& all, unsigned b, unsigned h, int begin) {
    const int warp = warp_of_block(), lane = lane_of_warp(), query = begin + lane;
    const int64_t row = int64_t{b * all.in.H + h} * all.in.T, text = int64_t{b} * all.in.T;
    const bool in_range = query < all.in.T;
    if (warp == 0) copy_async<4>(lse + lane, all.lse + row + query, in_range);
    if (warp == 1) copy_async<4>(delta + lane, all.delta + row + query, in_range);
    if (warp == 2 && all.in.first) {
      copy_async<4>(first + lane, all.in.first + text + query, in_range);
    }
  }
};

// The tile of queries that a block is at: from the first tile to the last, for each query head that
// shares the key head.
struct QueryCursor {
  unsigned h, end_head;
  int begin, first, end;

  __device__ bool in_range() const { return h < end_head && begin < end; }
  __device__ QueryCursor next(int step) const {
    if (begin + step < end) return {h, end_head, begin + step, first, end};
    return {h + 1, end_head, first, first, end};
  }
};

// The parts of the query heads that share a key head, and the memory of their dk and dv; null if
// there is one part, which is written to the gradient.
struct KeyParts {
  float* sums;  // (count, B, T, 2 Hkv, D)
  unsigned heads, count;
};

// A block's tile of keys of one key head, and the queries that see some of them.  Tiles that are
// seen the most go first.
template <class S>
struct KeyPlace {
  unsigned part, b, kv;
  int begin, first_query, end_query;

  __device__ KeyPlace(const TensorHeads& all, unsigned parts)
      : part(blockIdx.x / all.Hkv % parts),
        b(blockIdx.x / (all.Hkv * parts) % all.B),
        kv(blockIdx.x % all.Hkv),
        begin(static_cast<int>(blockIdx.x / (all.Hkv * parts * all.B)) * S::rows),
        first_query(all.causal ? begin : 0),
        end_query(end_of(all)) {}

  __device__ QueryCursor first(unsigned group, unsigned heads) const {
    const unsigned first_head = kv * group + part * heads;
    return {first_head, min(first_head + heads, (kv + 1) * group), first_query, first_query,
            end_query};
  }
  // The first of a warp's keys, of the m-th 16.
  __device__ int row(int m) const { return begin + warp_of_block() * S::warp_rows + 16 * m; }

 private:
  __device__ int end_of(const TensorHeads& all) const {
    const int* const firsts = all.firsts(b);
    if (!firsts) return all.T;
    return end_of_queries<S::threads>(firsts, begin, begin + S::rows, all.T);
  }
};

// The dk and dv of a warp's keys.
template <class S>
struct KeyGradients {
  Results<S::M, S::D> dkeys, dvalues;
  const TensorHeads& all;
  int begin;  // the warp's first key

  __device__ KeyGradients(const TensorHeads& heads, int row) : all(heads), begin(row) {
    set_zero<S::M, S::D>(dkeys);
    set_zero<S::M, S::D>(dvalues);
  }

  // Whether queries from `query` on see some of the keys, and whether they see all.
  __device__ bool seen_by_some(int query) const { return !all.causal || query + S::N > begin; }
  __device__ bool seen_by_all(int query, const QueryNumbers<S>& numbers) const {
    if (!all.causal) return true;
    if (query < begin + S::warp_rows - 1) return false;
    if (!all.first) return true;
    return __reduce_max_sync(all_lanes, numbers.first[lane_of_warp()]) <= begin;
  }
  __device__ void hide(Results<S::M, S::N>& scores, int query,
                       const QueryNumbers<S>& numbers) const {
#pragma unroll
    for (int j = 0; j < S::N / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int column = 8 * j + k + lane_column();
        const int from = (all.first ? numbers.first[column] : 0) - begin - lane_row();
        const int to = query + column - begin - lane_row();
#pragma unroll
        for (int m = 0; m < S::M; ++m) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int row = 16 * m + 8 * i;
            if (row < from || row > to) scores[m][j][2 * i + k] = -INFINITY;
          }
        }
      }
    }
  }

  // Adds the terms of a tile of queries.
  __device__ void add(const OwnRows<S>& keys, const OwnRows<S>& values, const OtherTiles<S>& tiles,
                      int stage, int query, const QueryNumbers<S>& numbers) {
    const bf16 *const queries = tiles.of_a(stage), *const dy = tiles.of_b(stage);
    Results<S::M, S::N> s, ds;
    multiply_rows<S>(s, keys, queries);
    if (all.negative) scale_by<S::M, S::N>(s, -1);
    if (!seen_by_all(query, numbers)) hide(s, query, numbers);
    multiply_rows<S>(ds, values, dy);
    differentiate(s, ds, numbers, all.scale);
    add_weighted_rows<S>(dvalues, s, dy);
    add_weighted_rows<S>(dkeys, ds, queries);
  }

  // Turns scores into weights, and dp into the derivative of the scores.
  __device__ void differentiate(Results<S::M, S::N>& s, Results<S::M, S::N>& dp,
                                const QueryNumbers<S>& numbers, float scale) const {
#pragma unroll
    for (int j = 0; j < S::N / 8; ++j) {
      const int column = 8 * j + lane_column();
      const float2 lse = *reinterpret_cast<const float2*>(numbers.lse + column);
      const float2 delta = *reinterpret_cast<const float2*>(numbers.delta + column);
      const float logs[2] = {lse.x * log2_of_e, lse.y * log2_of_e}, deltas[2] = {delta.x, delta.y};
#pragma unroll
      for (int m = 0; m < S::M; ++m) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          s[m][j][k] = fast_exp2(s[m][j][k] * scale - logs[k % 2]);
          dp[m][j][k] = s[m][j][k] * (dp[m][j][k] - deltas[k % 2]);
        }
      }
    }
  }
};

// The tiles of queries and dy, and their numbers.
template <class S>
struct QueryTiles {
  const TensorBackward& all;
  unsigned b;
  bf16* memory;

  __device__ QueryNumbers<S>* numbers() const {
    return reinterpret_cast<QueryNumbers<S>*>(memory + 4 * S::other_tile);
  }
  __device__ OtherTiles<S> of_head(unsigned h) const {
    return {.a = all.in.queries.rows(b, h),
            .b = all.dy.rows(b, h),
            .memory = memory,
            .end = all.in.T,
            .D = all.in.D};
  }
  __device__ void copy(const QueryCursor& to, int stage) const {
    if (to.in_range()) {
      of_head(to.h).copy(to.begin, stage);
      numbers()[stage].copy(all, b, to.h, to.begin);
    }
    end_copies();
  }
};

__device__ Gradient gradient_of_part(const TensorBackward& all, const KeyParts& parts,
                                     unsigned part) {
  const int64_t row = int64_t{2} * all.in.Hkv * all.in.D, text = all.in.T * row;
  return {.data = parts.sums + part * all.in.B * text,
          .text = text,
          .row = row,
          .f32 = true,
          .accumulate = false};
}

template <class S>
__global__ void __launch_bounds__(S::threads, 2)
    tensor_dkeys_kernel(TensorBackward all, KeyParts parts) {
  SPOOL_SHARED_DYNAMIC(bf16, memory);
  const TensorHeads& in = all.in;
  const KeyPlace<S> at(in, parts.count);
  bf16* const own_values = memory + S::row_tile;
  const QueryTiles<S> tiles{all, at.b, own_values + S::row_tile};
  copy_tile_rows<S, S::rows>(memory, in.keys.rows(at.b, at.kv), at.begin, in.T, in.D);
  copy_tile_rows<S, S::rows>(own_values, in.values.rows(at.b, at.kv), at.begin, in.T, in.D);
  QueryCursor now = at.first(in.group(), parts.heads);
  tiles.copy(now, 0);
  OwnRows<S> keys(memory), values(own_values);
  KeyGradients<S> rows(in, at.row(0));
  wait_for_tiles();
  keys.load();
  values.load();
  for (int stage = 0; now.in_range(); stage ^= 1) {
    const QueryCursor next = now.next(S::N);
    tiles.copy(next, stage ^ 1);
    if (rows.seen_by_some(now.begin)) {
      rows.add(keys, values, tiles.of_head(now.h), stage, now.begin, tiles.numbers()[stage]);
    }
    wait_for_tiles();
    now = next;
  }
  scale_by<S::M, S::D>(rows.dkeys, all.scale);
  float* const own = reinterpret_cast<float*>(memory) + warp_of_block() * S::written_tile;
  const Gradient to = parts.sums ? gradient_of_part(all, parts, at.part) : all.out;
  const unsigned head = parts.sums ? at.kv : in.H + at.kv;
#pragma unroll
  for (int m = 0; m < S::M; ++m) {
    all.template write<S>(to, at.b, head, at.row(m), rows.dkeys[m], own);
    all.template write<S>(to, at.b, head + in.Hkv, at.row(m), rows.dvalues[m], own);
  }
}

constexpr int add_parts_block = 256, add_parts_width = 8;

// Adds the parts in their order; a thread has 8 numbers of each.
template <class G>
__global__ void __launch_bounds__(add_parts_block)
    add_dkeys_parts_kernel(const float* parts, unsigned count, int64_t each, RowSink<G> to) {
  const int64_t at = (int64_t{blockIdx.x} * add_parts_block + threadIdx.x) * add_parts_width;
  if (at >= each) return;
  float sum[add_parts_width] = {};
#pragma unroll 4
  for (unsigned part = 0; part < count; ++part) {
    const float* const from = parts + part * each + at;
    const Four low = load_four(from), high = load_four(from + 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum[k] += low.at[k];
      sum[4 + k] += high.at[k];
    }
  }
  to.put(static_cast<int>(at / to.D), static_cast<int>(at % to.D), sum);
}

template <int D>
using DkeysTiling = TensorTiling<D, D <= 64 ? 2 : 1, 32, D == 32 || D == 96>;

template <class G>
void add_parts(const TensorBackward& all, const KeyParts& parts, const CudaStream& stream) {
  const TensorHeads& in = all.in;
  const int rows = static_cast<int>(in.B) * in.T, columns = 2 * static_cast<int>(in.Hkv) * in.D;
  const RowSink<G> to{static_cast<G*>(all.out.data) + int64_t{in.H} * in.D, all.out.row, rows,
                      columns, all.out.accumulate};
  const int64_t each = int64_t{rows} * columns;
  launch_kernel(
      stream, add_dkeys_parts_kernel<G>,
      {.grid = dim3(unsigned(ceil_div<int64_t>(each, int64_t{add_parts_block} * add_parts_width))),
       .block = dim3(add_parts_block)},
      static_cast<const float*>(parts.sums), parts.count, each, to);
}

}  // namespace

void launch_tensor_dkeys(const TensorBackward& all, float* parts, const CudaStream& stream) {
  const TensorHeads& in = all.in;
  const DkeysParts cut = dkeys_parts({.B = in.B, .T = in.T, .H = in.H, .Hkv = in.Hkv, .D = in.D});
  float* const sums = cut.count > 1 ? parts : nullptr;
  const KeyParts of{.sums = sums,
                    .heads = static_cast<unsigned>(cut.heads),
                    .count = static_cast<unsigned>(cut.count)};
  dispatch_tensor_head(in.D, [&](auto head) {
    using S = DkeysTiling<decltype(head)::value>;
    constexpr size_t shared = gradient_shared<S> + 2 * sizeof(QueryNumbers<S>);
    static_assert(shared <= max_block_shared && S::rows == dkeys_tile(S::D));
    const unsigned tiles = static_cast<unsigned>(ceil_div(in.T, S::rows));
    launch_kernel(stream, tensor_dkeys_kernel<S>,
                  {.grid = dim3(in.B * in.Hkv * of.count * tiles),
                   .block = dim3(S::threads),
                   .shared = shared},
                  all, of);
  });
  if (!of.sums) return;
  all.out.f32 ? add_parts<float>(all, of, stream) : add_parts<bf16>(all, of, stream);
}

}  // namespace spool::cuda
