// A block computes a tile of queries of one head; it loops over the tiles of keys that they see
// under a running maximum.  Scores are to the base 2, so that a weight is one multiply-add and one
// 2^x; lse is to the base e again.

#include "spool/kernels/cuda/tensor_attention_tiles.cuh"

namespace spool::cuda {

TensorHeads tensor_heads(const View& qkv, const View& first, const AttentionExtents& e, Mask mask,
                         double scale) {
  constexpr double log2_e = 1.44269504088896340736;
  constexpr float min_scale = 0x1p-100f;
  return {.queries = heads_of<const bf16>(qkv, 0, e.D),
          .keys = heads_of<const bf16>(qkv, e.key(0), e.D),
          .values = heads_of<const bf16>(qkv, e.value(0), e.D),
          .first = first ? first.as<int32_t>() : nullptr,
          .B = static_cast<unsigned>(e.B),
          .H = static_cast<unsigned>(e.H),
          .Hkv = static_cast<unsigned>(e.Hkv),
          .T = static_cast<int>(e.T),
          .D = static_cast<int>(e.D),
          .causal = mask == Mask::causal,
          .negative = scale < 0,
          .scale = std::max(static_cast<float>(std::abs(scale) * log2_e), min_scale)};
}

namespace {

// The first key that queries of a text see, from it on, while earlier ones see their own alone.
struct TextFirst {
  int key;
  __device__ explicit operator bool() const { return key > 0; }
  __device__ int operator[](int query) const { return min(key, query); }
};
__device__ int min_first(const TextFirst& firsts, int begin, int) { return firsts[begin]; }

// The same where keys and values are of tokens [0, T), in a cache, and queries of tokens [past, T).
// Rows of both are counted from the text's beginning.
struct CachedHeads : TensorHeads {
  const int* text_first = nullptr;  // (B), or null
  int past = 0;

  __device__ TextFirst firsts(unsigned b) const {
    return {text_first ? max(__ldg(text_first + b), 0) : 0};
  }
  __device__ int first_query() const { return past; }
};

// For each row: y before the division, the largest scaled score so far, and this lane's part of the
// sum of the weights.
template <class S>
struct TensorForwardRows {
  Results<S::M, S::D> y;
  float largest[S::M][2], sum[S::M][2];

  __device__ TensorForwardRows() {
    set_zero<S::M, S::D>(y);
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        largest[m][i] = -INFINITY;
        sum[m][i] = 0;
      }
    }
  }

  // Turns scores into weights.  Where nothing is seen yet the largest score counts as 0, so that no
  // weight is NaN.
  __device__ void weigh(Results<S::M, S::N>& s, float scale) {
    float correction[S::M][2];
    bool corrected = false;
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float next = fmaxf(largest[m][i], scale * largest_of_row(s, m, i));
        const float base = next == -INFINITY ? 0 : next;
        correction[m][i] = fast_exp2(largest[m][i] - base);
        corrected |= correction[m][i] != 1;
        largest[m][i] = next;
        sum[m][i] *= correction[m][i];
#pragma unroll
        for (int j = 0; j < S::N / 8; ++j) {
#pragma unroll
          for (int k = 2 * i; k < 2 * i + 2; ++k) {
            sum[m][i] += s[m][j][k] = fast_exp2(s[m][j][k] * scale - base);
          }
        }
      }
    }
    if (!__any_sync(all_lanes, corrected)) return;
    multiply_by(correction);
  }

  __device__ static float largest_of_row(const Results<S::M, S::N>& s, int m, int i) {
    float max = -INFINITY;
#pragma unroll
    for (int j = 0; j < S::N / 8; ++j) {
      max = fmaxf(max, fmaxf(s[m][j][2 * i], s[m][j][2 * i + 1]));
    }
    max = fmaxf(max, __shfl_xor_sync(all_lanes, max, 1));
    return fmaxf(max, __shfl_xor_sync(all_lanes, max, 2));
  }

  __device__ void multiply_by(const float (&factors)[S::M][2]) {
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int d = 0; d < S::D / 8; ++d) {
#pragma unroll
        for (int k = 0; k < 4; ++k) y[m][d][k] *= factors[m][k / 2];
      }
    }
  }

  // Divides y by the sum of weights, and writes log sum exp of each row, unless lse is null.
  __device__ void finish(const QueryPlace<S>& at, float* lse, int T) {
    constexpr float ln_2 = 0.693147180559945309f;
    float factors[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float all = sum[m][i];
        all += __shfl_xor_sync(all_lanes, all, 1);
        all += __shfl_xor_sync(all_lanes, all, 2);
        factors[m][i] = 1 / all;
        const int query = at.row(m) + 8 * i + lane_row();
        if (lse && query < at.end && lane_column() == 0) {
          lse[int64_t{at.head} * T + query] = largest[m][i] * ln_2 + logf(all);
        }
      }
    }
    multiply_by(factors);
  }
};

template <class S, class Heads>
__global__ void __launch_bounds__(S::threads, 2)
    tensor_forward_kernel(Heads all, HeadArray<bf16> y, float* lse) {
  SPOOL_SHARED_DYNAMIC(bf16, memory);
  const QueryPlace<S> at(all);
  const OtherTiles<S> tiles{.a = all.keys.rows(at.b, at.kv),
                            .b = all.values.rows(at.b, at.kv),
                            .memory = memory + S::row_tile,
                            .end = all.T,
                            .D = all.D};
  copy_tile_rows<S, S::rows>(memory, all.queries.rows(at.b, at.h), at.begin, at.end, all.D);
  tiles.copy(at.first_key, 0);
  end_copies();
  const QueryMask<S> mask(all, at.b, at.begin);
  OwnRows<S> queries(memory);
  TensorForwardRows<S> rows;
  wait_for_tiles();
  queries.load();
  for (int key = at.first_key, stage = 0; key < at.end_key; key += S::N, stage ^= 1) {
    if (key + S::N < at.end_key) tiles.copy(key + S::N, stage ^ 1);
    end_copies();
    if (mask.sees_some(key)) {
      Results<S::M, S::N> s;
      multiply_rows<S>(s, queries, tiles.of_a(stage));
      if (all.negative) scale_by<S::M, S::N>(s, -1);
      if (!mask.sees_all(key)) mask.hide(s, key);
      rows.weigh(s, all.scale);
      add_weighted_rows<S>(rows.y, s, tiles.of_b(stage));
    }
    wait_for_tiles();
  }
  rows.finish(at, lse, all.T);
  float* const own = reinterpret_cast<float*>(memory) + warp_of_block() * S::written_tile;
  const HeadRows<bf16> to = y.rows(at.b, at.h);
#pragma unroll
  for (int m = 0; m < S::M; ++m) {
    const RowSink<bf16> sink{to.at(at.row(m)), to.stride, at.count(m), all.D, false};
    write_rows<S>(sink, rows.y[m], own);
  }
}

template <class S>
constexpr size_t tensor_forward_shared = std::max((S::row_tile + 4 * S::other_tile) * sizeof(bf16),
                                                  S::warps* S::written_tile * sizeof(float));

// Two blocks fit into the registers of a multiprocessor.
template <int D>
using TensorForwardTiling = TensorTiling<D, 2, D <= 64 ? 64 : 32, D <= 96>;

template <class Heads>
void launch_tensor_forward(const Heads& all, int queries, const HeadArray<bf16>& y, float* lse,
                           const CudaStream& stream) {
  dispatch_tensor_head(all.D, [&](auto head) {
    using S = TensorForwardTiling<decltype(head)::value>;
    static_assert(tensor_forward_shared<S> <= max_block_shared);
    const auto tiles = static_cast<unsigned>(ceil_div(queries, S::rows));
    launch_kernel(stream, tensor_forward_kernel<S, Heads>,
                  {.grid = dim3(tiles * all.B * all.H),
                   .block = dim3(S::threads),
                   .shared = tensor_forward_shared<S>},
                  all, y, lse);
  });
}

// Heads whose row 0 would be `rows` rows before theirs.
template <class T>
HeadArray<T> counted_from(int64_t rows, HeadArray<T> heads) {
  heads.data -= rows * heads.row;
  return heads;
}

}  // namespace

void tensor_attention_forward(const AttentionForward& k, CudaStream& stream) {
  const AttentionExtents e(k.qkv, k.y, k.heads);
  if (e.B * e.T == 0) return;
  const TensorHeads all = tensor_heads(k.qkv, k.first, e, k.mask, k.scale);
  launch_tensor_forward(all, all.T, heads_of<bf16>(k.y, 0, e.D), k.lse.as<float>(), stream);
}

void tensor_attention_cached(const CachedAttention& k, CudaStream& stream) {
  const CachedExtents e(k);
  if (e.B * e.T == 0) return;
  const auto cache = [&](const View& part) {
    return HeadArray<const bf16>{part.as<bf16>(), e.Hkv * e.P * e.D, e.P * e.D, e.D};
  };
  CachedHeads all{tensor_heads(k.qkv, {}, e, Mask::causal, k.scale)};
  all.queries = counted_from(k.position, all.queries);
  all.keys = cache(k.keys);
  all.values = cache(k.values);
  all.text_first = k.first ? k.first.as<int32_t>() : nullptr;
  all.past = static_cast<int>(k.position);
  all.T += all.past;
  const auto queries = static_cast<int>(e.T);
  launch_tensor_forward(all, queries, counted_from(k.position, heads_of<bf16>(k.y, 0, e.D)),
                        nullptr, stream);
}

}  // namespace spool::cuda
