#pragma once

// The embedding of tokens and positions, and its gradients:
// y[b,t,c] = weight[tokens[b,t], c] + positions[first_position + t, c]
// dweight[v,c] (+)= sum over (b,t) with tokens[b,t] = v of dy[b,t,c], in the order of the tokens
// dpositions[t,c] (+)= sum_b dy[b,t,c]
// Gradients of tokens that do not occur are set to zero, unless accumulating.  A token outside
// [0, V) is an error on the cpu; on cuda, where the host does not read tokens, its row of y is NaN,
// and it adds to no gradient.  What is written shares no memory with other arguments.
//
// The weight may be a part of the rows of V: a token of another part has a weight of zeros, and
// adds to no gradient of it.

#include "spool/kernels/launch.h"
#include "spool/kernels/vocabulary_part.h"

namespace spool {

struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  View y;               // (B, T, C)
  View tokens, weight;  // i32 (B, T), each in [0, V); (V, C), or a part of its rows
  View positions = {};  // (at least first_position + T, C), or absent
  int64_t first_position = 0;
  VocabularyPart part = {};  // of the weight
  void check_arguments() const;
  Cost cost() const {
    const double read = part.share_of(weight.shape().rows());
    return {1.0 * static_cast<double>(y.numel()), (1 + read) * bytes(y)};
  }
};

struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  Grad dweight;              // as the weight, type of dy or f32; may be absent
  Grad dpositions;           // (at least T, C), type of dy or f32; may be absent
  View dy, tokens;           // (B, T, C), i32 (B, T)
  VocabularyPart part = {};  // of dweight
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    const double read =
        dweight ? part.share_of(dweight.view.shape().rows()) * bytes(dy) : bytes(dy);
    return {2.0 * static_cast<double>(dy.numel()),
            bytes(dpositions, dy) + read + (dweight.accumulate ? read : bytes(dweight))};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const EmbeddingForward&, CpuStream&);
void run(const EmbeddingBackward&, CpuStream&);
void run(const EmbeddingForward&, CudaStream&);
void run(const EmbeddingBackward&, CudaStream&);

}  // namespace spool
