#pragma once

// Causal multi-head attention of n new tokens, whose first is at `position` of its text, over a
// cache that holds the keys and values of the tokens before them.  Those of the new ones are stored
// first, at rows [position, position + n).
//
// Packed q, k and v, the heads and the formulas are those of kernels/attention.h, with rows of the
// cache for keys and values.  For query i of the new ones, per b and h:
//   s[j] = scale * sum_d q[i,d] keys[j,d]     for j <= position + i
//   y[i,d] = sum_j exp(s[j]) values[j,d] / sum_j exp(s[j])

#include "spool/kernels/attention.h"

namespace spool {

struct CachedAttention {
  static constexpr const char* name = "cached_attention";
  View y;             // (B, n, H D)
  View keys, values;  // (B, Hkv, P, D); rows from `position` on are not read
  View qkv;           // (B, n, (H + 2 Hkv) D), of their type
  Heads heads = {};
  int64_t position = 0;  // position + n <= P
  double scale = 1;      // usually 1 / sqrt(D)
  View workspace = {};

  Cost cost() const;
  // Of P, not of the position: so every step of a text takes the same.
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

// Those of its arguments, which must fit each other.
struct CachedExtents : AttentionExtents {
  int64_t P = 0;

  explicit CachedExtents(const CachedAttention&);
  // The place of a row of the cache in the memory of keys, and of values.
  int64_t row(int64_t b, int64_t kv, int64_t at) const { return ((b * Hkv + kv) * P + at) * D; }
};

void run(const CachedAttention&, CpuStream&);
void run(const CachedAttention&, CudaStream&);

}  // namespace spool
