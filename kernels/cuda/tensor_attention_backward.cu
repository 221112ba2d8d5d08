// Three kernels, without atomics, so that every sum has a fixed order: one computes delta
// (attention_backward.cu), one dq, and one dk and dv (tensor_attention_dkeys.cu, where a fourth may
// add parts of them), the last two from delta.  In these two a block computes a tile of rows of one
// head and loops over the tiles of the other side; blocks with the most tiles go first.

#include "spool/kernels/cuda/tensor_attention_backward.cuh"
#include "spool/kernels/tensor_attention_sizes.h"

namespace spool::cuda {
namespace {

// The dq of a warp's queries.
template <class S>
struct QueryGradients {
  Results<S::M, S::D> dqueries;
  float lse[S::M][2], delta[S::M][2];  // lse to the base 2

  __device__ QueryGradients(const TensorBackward& all, unsigned head, const QueryMask<S>& mask) {
    set_zero<S::M, S::D>(dqueries);
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t at = int64_t{head} * all.in.T + mask.query(m, i);
        lse[m][i] = all.lse[at] * log2_of_e;
        delta[m][i] = all.delta[at];
      }
    }
  }

  // Turns dp, which is dy times values, into the derivative of the scores s.
  __device__ void differentiate(Results<S::M, S::N>& dp, const Results<S::M, S::N>& s,
                                float scale) const {
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int j = 0; j < S::N / 8; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float p = fast_exp2(s[m][j][k] * scale - lse[m][k / 2]);
          dp[m][j][k] = p * (dp[m][j][k] - delta[m][k / 2]);
        }
      }
    }
  }
};

template <class S>
__global__ void __launch_bounds__(S::threads, 2) tensor_dqueries_kernel(TensorBackward all) {
  SPOOL_SHARED_DYNAMIC(bf16, memory);
  const TensorHeads& in = all.in;
  const QueryPlace<S> at(in);
  bf16* const own_dy = memory + S::row_tile;
  const OtherTiles<S> tiles{.a = in.keys.rows(at.b, at.kv),
                            .b = in.values.rows(at.b, at.kv),
                            .memory = own_dy + S::row_tile,
                            .end = in.T,
                            .D = in.D};
  copy_tile_rows<S, S::rows>(memory, in.queries.rows(at.b, at.h), at.begin, at.end, in.D);
  copy_tile_rows<S, S::rows>(own_dy, all.dy.rows(at.b, at.h), at.begin, at.end, in.D);
  tiles.copy(at.first_key, 0);
  end_copies();
  const QueryMask<S> mask(in, at.b, at.begin);
  QueryGradients<S> rows(all, at.head, mask);
  OwnRows<S> queries(memory), dy(own_dy);
  wait_for_tiles();
  queries.load();
  dy.load();
  for (int key = at.first_key, stage = 0; key < at.end_key; key += S::N, stage ^= 1) {
    if (key + S::N < at.end_key) tiles.copy(key + S::N, stage ^ 1);
    end_copies();
    if (mask.sees_some(key)) {
      Results<S::M, S::N> s, ds;
      multiply_rows<S>(s, queries, tiles.of_a(stage));
      multiply_rows<S>(ds, dy, tiles.of_b(stage));
      if (in.negative) scale_by<S::M, S::N>(s, -1);
      if (!mask.sees_all(key)) mask.hide(s, key);
      rows.differentiate(ds, s, in.scale);
      add_weighted_rows<S>(rows.dqueries, ds, tiles.of_a(stage));
    }
    wait_for_tiles();
  }
  scale_by<S::M, S::D>(rows.dqueries, all.scale);
  float* const own = reinterpret_cast<float*>(memory) + warp_of_block() * S::written_tile;
#pragma unroll
  for (int m = 0; m < S::M; ++m) {
    all.template write<S>(all.out, at.b, at.h, at.row(m), rows.dqueries[m], own);
  }
}

template <int D>
using DqueriesTiling = TensorTiling<D, D <= 64 ? 2 : 1, 32, true>;

TensorBackward tensor_backward(const AttentionBackward& k, const AttentionExtents& e) {
  const View& out = k.dqkv.view;
  const int64_t row = out.shape().row();
  return {.in = tensor_heads(k.qkv, k.first, e, k.mask, k.scale),
          .dy = heads_of<const bf16>(k.dy, 0, e.D),
          .lse = k.lse.as<float>(),
          .delta = k.workspace.as<float>(),
          .out = {.data = out.data(),
                  .text = e.T * row,
                  .row = row,
                  .f32 = out.dtype() == DType::f32,
                  .accumulate = k.dqkv.accumulate},
          .scale = static_cast<float>(k.scale)};
}

}  // namespace

void tensor_attention_backward(const AttentionBackward& k, CudaStream& stream) {
  if (!k.dqkv) return;
  const AttentionExtents e(k.qkv, k.y, k.heads);
  if (e.B * e.T == 0) return;
  attention_delta(k, stream);
  const TensorBackward all = tensor_backward(k, e);
  dispatch_tensor_head(e.D, [&](auto head) {
    using S = DqueriesTiling<decltype(head)::value>;
    static_assert(gradient_shared<S> <= max_block_shared);
    launch_kernel(stream, tensor_dqueries_kernel<S>,
                  {.grid = dim3(unsigned(e.B * e.H * ceil_div<int64_t>(e.T, S::rows))),
                   .block = dim3(S::threads),
                   .shared = gradient_shared<S>},
                  all);
  });
  const int64_t parts = dkeys_parts_begin(attention_shape(k.qkv, k.y, k.heads));
  launch_tensor_dkeys(all, k.workspace.as<float>() + parts, stream);
}

}  // namespace spool::cuda
