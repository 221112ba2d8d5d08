// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Decides which attention cuDNN computes on cuda, and how its backward is cut into parts.
//
// To give the same bits every run, cuDNN's backward stores the derivative of every score, which is
// 2 B H T^2 bytes.  So it runs in parts: some texts each or, if one text is too large, some of its
// heads, so that no part needs more than 256 MiB.  All of this depends only on shapes and types, so
// a rehearsal without cuDNN predicts it.

#include <algorithm>
#include <compare>
#include <cstddef>

#include "spool/kernels/attention.h"

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

constexpr size_t max_attention_bytes = size_t{256} << 20;

// Workspace for a call of cuDNN, in bytes: its known needs and a margin.
size_t fused_forward_bytes(const AttentionShape&);
size_t fused_backward_bytes(const AttentionShape& part);

// The fewest parts of at most max_bytes each, of nearly equal size.  Parts have one text and one
// key head if even those need more.
AttentionCut cut_backward(const AttentionShape&, size_t max_bytes = max_attention_bytes);
// Workspace of the largest part, in bytes.
size_t fused_backward_bytes(const AttentionShape&, const AttentionCut&);

// Whether cuDNN computes it; false without cuDNN.
bool is_fused(const AttentionForward&, const CudaArchitecture&);
bool is_fused(const AttentionBackward&, const CudaArchitecture&);

}  // namespace spool::cuda
