#include "spool/models/training/attention_methods.h"

namespace spool {
namespace {

// A view that counts as present, without memory.
View without_memory(const Shape& shape, DType type) {
  static std::byte somewhere;
  return {&somewhere, {shape, type}};
}

int64_t parts_of(const AttentionBackward& k, const CudaArchitecture& architecture) {
  const cuda::AttentionShape all = cuda::attention_shape(k.qkv, k.y, k.heads);
  int64_t parts = 0;
  cuda::cut_backward(all, cuda::kind_of(k, architecture))
      .for_each_part(all, [&](const cuda::AttentionPart&) { ++parts; });
  return parts;
}

}  // namespace

AttentionMethods attention_methods(const TrainingConfig& c, const CudaArchitecture& architecture) {
  const ModelShape model = c.model.shape();
  const Heads heads = model.heads;
  const int64_t B = c.batch, T = c.seq, D = model.head, packed = heads.query + 2 * heads.key;
  const View qkv = without_memory({B, T, packed * D}, c.dtype),
             y = without_memory({B, T, heads.query * D}, c.dtype),
             lse = without_memory({B, heads.query, T}, DType::f32);
  const AttentionForward forward{.y = y, .lse = lse, .qkv = qkv, .heads = heads};
  const AttentionBackward backward{.dqkv = Grad(qkv),
                                   .dy = y,
                                   .qkv = qkv,
                                   .y = y,
                                   .lse = lse,
                                   .heads = heads,
                                   .order = c.sum_order()};
  AttentionMethods methods{.forward = choose_attention(forward, architecture),
                           .backward = choose_attention(backward, architecture)};
  if (methods.backward.method == AttentionMethod::cudnn) {
    methods.parts = parts_of(backward, architecture);
  }
  return methods;
}

}  // namespace spool
