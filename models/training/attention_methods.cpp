#include "spool/models/training/attention_methods.h"

#include <algorithm>

namespace spool {
namespace {

// A view that counts as present, without memory.
View without_memory(const Shape& shape, DType type) {
  static std::byte somewhere;
  return {&somewhere, {shape, type}};
}

int64_t parts_of(const AttentionBackward& k) {
  const cuda::AttentionShape all = cuda::attention_shape(k.qkv, k.y, k.heads);
  int64_t parts = 0;
  cuda::cut_backward(all, k.parts).for_each_part(all, [&](const cuda::AttentionPart&) { ++parts; });
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
  AttentionBackward backward{.dqkv = Grad(qkv),
                             .dy = y,
                             .qkv = qkv,
                             .y = y,
                             .lse = lse,
                             .heads = heads,
                             .order = c.sum_order()};
  std::vector<NodesInChunks> all = parts_in(c.chunks.nodes);
  if (all.empty()) all.emplace_back();
  std::ranges::sort(all, {}, &NodesInChunks::chunks);
  backward.parts = all.front().chunks;
  AttentionMethods methods{.forward = choose_attention(forward, architecture),
                           .backward = choose_attention(backward, architecture)};
  if (methods.backward.method != AttentionMethod::cudnn) return methods;
  for (const NodesInChunks& layer : all) {
    backward.parts = layer.chunks;
    if (choose_attention(backward, architecture).method == AttentionMethod::cudnn) {
      methods.parts = std::max(methods.parts, parts_of(backward));
    } else {
      ++methods.without_cudnn;
    }
  }
  return methods;
}

}  // namespace spool
