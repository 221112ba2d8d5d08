#pragma once

// Chooses what computes attention on cuda, and how cuDNN's backward is cut into parts.
//
//   cudnn         bf16, a gradient that is written, heads of multiples of 8, tokens of 4
//   tensor_cores  Spool's kernels on tensor cores: bf16, heads of multiples of 16 up to 128; also
//                 for texts packed into one row, and for a gradient that is f32 or is added to
//   plain         Spool's kernels without tensor cores, for the rest
//
// The first that supports the call is chosen.  To give the same bits every run, cuDNN's backward
// stores the derivative of every score, 2 B H T^2 bytes, except at compute capability 10.  So it
// may run in parts: some texts each or, if there are more parts than texts, some of one's key
// heads.  A plan says how many for each attention, by the memory it has (autograd/plan.h, as
// chunks); more than there are key heads in all texts mean Spool's kernels.  All of this depends
// only on shapes, types, the plan and the architecture, so a rehearsal without a GPU predicts it.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <string>

#include "spool/kernels/attention.h"

namespace spool {

enum class AttentionMethod : uint8_t { cudnn, tensor_cores, plain };
template <>
inline constexpr std::array enumerator_names<AttentionMethod>{"cuDNN", "tensor cores", "plain"};

// The chosen method, and why the methods before it cannot be used; null for the others.
struct AttentionChoice {
  AttentionMethod method = AttentionMethod::cudnn;
  const char *against_cudnn = nullptr, *against_tensor_cores = nullptr;

  // "rows hold several texts"; empty for cuDNN.
  std::string why() const;
};
AttentionChoice choose_attention(const AttentionForward&, const CudaArchitecture&);
AttentionChoice choose_attention(const AttentionBackward&, const CudaArchitecture&);

}  // namespace spool

namespace spool::cuda {

// The extents of attention, or of a part of it.
struct AttentionShape {
  int64_t B, T, H, Hkv, D;
  auto operator<=>(const AttentionShape&) const = default;
};
AttentionShape attention_shape(const View& qkv, const View& y, const Heads&);

// Some texts and some of their key heads, each with all query heads that share it.
struct AttentionPart {
  Range texts, key_heads;
};

// Numbers of texts and key heads in a part; the last parts may have fewer.
struct AttentionCut {
  int64_t texts = 1, key_heads = 1;

  template <class F>
  void for_each_part(const AttentionShape& all, const F& f) const {
    for (int64_t b = 0; b < all.B; b += texts) {
      for (int64_t h = 0; h < all.Hkv; h += key_heads) {
        f(AttentionPart{{b, std::min(b + texts, all.B)}, {h, std::min(h + key_heads, all.Hkv)}});
      }
    }
  }
};

// How cuDNN computes a backward.
struct FusedBackwardKind {
  SumOrder order = SumOrder::fixed;
  int major = 9;  // compute capability
};
FusedBackwardKind kind_of(const AttentionBackward&, const CudaArchitecture&);

// Workspace for a call of cuDNN, in bytes: its known needs and a margin.
size_t fused_forward_bytes(const AttentionShape&);
size_t fused_backward_bytes(const AttentionShape& part, FusedBackwardKind);
// Bytes of the derivatives of all scores that it stores to add them in a fixed order.
int64_t stored_score_bytes(const AttentionShape&, FusedBackwardKind);

// At most so many parts, from 1 to the key heads of all texts, of nearly equal size: of whole texts
// if there are at least as many.
AttentionCut cut_backward(const AttentionShape&, int64_t parts);
// Workspace of the largest part, in bytes.
size_t fused_backward_bytes(const AttentionShape&, FusedBackwardKind, const AttentionCut&);

}  // namespace spool::cuda
