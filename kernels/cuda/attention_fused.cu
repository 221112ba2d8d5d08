#include "spool/kernels/cuda/attention_fused.cuh"

#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {
namespace {

using Element = __nv_bfloat16;

// Addresses of a part in the tensors.  In a row of the packed tensor come the heads of q, then
// those of k, then those of v.
struct Place {
  FusedShape shape;
  int64_t text, key_head;

  Element* head(const View& packed, int64_t number) const {
    return packed.as<Element>() + text * shape.packed_text() + number * shape.whole.D;
  }
  int64_t query_head() const { return key_head * (shape.whole.H / shape.whole.Hkv); }
  Element* q(const View& packed) const { return head(packed, query_head()); }
  Element* k(const View& packed) const { return head(packed, shape.whole.H + key_head); }
  Element* v(const View& packed) const {
    return head(packed, shape.whole.H + shape.whole.Hkv + key_head);
  }
  Element* y(const View& all) const {
    return all.as<Element>() + text * shape.y_text() + query_head() * shape.whole.D;
  }
  float* lse(const View& all) const {
    return all.as<float>() + text * shape.lse_text() + query_head() * shape.whole.T;
  }
};

template <class Kernel>
Place place(const Kernel& k, const AttentionShape& whole, const AttentionPart& p) {
  const AttentionShape part{.B = p.texts.size(),
                            .T = whole.T,
                            .H = p.key_heads.size() * (whole.H / whole.Hkv),
                            .Hkv = p.key_heads.size(),
                            .D = whole.D};
  return {
      .shape = {.part = part, .whole = whole, .scale = static_cast<float>(k.scale), .mask = k.mask},
      .text = p.texts.begin,
      .key_head = p.key_heads.begin};
}

}  // namespace

void fused_forward(const AttentionForward& k, CudaStream& stream) {
  const AttentionShape all = attention_shape(k.qkv, k.y, k.heads);
  const Place at = place(k, all, {{0, all.B}, {0, all.Hkv}});
  stream.library<FusedAttention>().forward({.shape = at.shape,
                                            .q = at.q(k.qkv),
                                            .k = at.k(k.qkv),
                                            .v = at.v(k.qkv),
                                            .y = at.y(k.y),
                                            .lse = at.lse(k.lse),
                                            .workspace = k.workspace});
}

void fused_backward(const AttentionBackward& k, const AttentionCut& cut, CudaStream& stream) {
  const AttentionShape all = attention_shape(k.qkv, k.y, k.heads);
  cut.for_each_part(all, [&](const AttentionPart& part) {
    Place at = place(k, all, part);
    at.shape.order = k.order;
    stream.library<FusedAttention>().backward({.shape = at.shape,
                                               .q = at.q(k.qkv),
                                               .k = at.k(k.qkv),
                                               .v = at.v(k.qkv),
                                               .y = at.y(k.y),
                                               .dy = at.y(k.dy),
                                               .lse = at.lse(k.lse),
                                               .dq = at.q(k.dqkv.view),
                                               .dk = at.k(k.dqkv.view),
                                               .dv = at.v(k.dqkv.view),
                                               .workspace = k.workspace});
  });
}

}  // namespace spool::cuda
