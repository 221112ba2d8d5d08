#pragma once

// Which attention is done by cuDNN, and how its backward is cut.
//
// cuDNN's backward, to give the same bits every run, keeps the derivative of every score, which is
// 2 B H T^2 bytes: so it is done in parts, of some texts each or, where one text is too much, of
// some of its heads, of which none takes more than 256 MiB.  All of this is a function of shapes
// and types, so that a rehearsal without cuDNN foretells it.

#include <algorithm>
#include <compare>
#include <cstddef>

#include "spool/kernels/attention.h"

namespace spool::cuda {

// What cuDNN wants to know of attention or of a part of it.
struct AttentionShape {
  int64_t B, T, H, Hkv, D;
  auto operator<=>(const AttentionShape&) const = default;
};
AttentionShape attention_shape(const View& qkv, const View& y, const Heads&);

// Some texts and some of their key heads, each with all query heads that share it.
struct AttentionPart {
  Range texts, key_heads;
};

// How many of these a part has; the last ones may have fewer.
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

// What a call of cuDNN may use: more than it is known to want.
size_t fused_forward_bytes(const AttentionShape&);
size_t fused_backward_bytes(const AttentionShape& part);

// The fewest parts within so many bytes, of the same size as far as they go; parts of one text and
// one key head where even they take more.
AttentionCut cut_backward(const AttentionShape&, size_t max_bytes = max_attention_bytes);
// What the largest part takes.
size_t fused_backward_bytes(const AttentionShape&, const AttentionCut&);

// Whether cuDNN does it, where there is one.
bool is_fused(const AttentionForward&, const CudaArchitecture&);
bool is_fused(const AttentionBackward&, const CudaArchitecture&);

}  // namespace spool::cuda
