#pragma once

// Causal multi-head attention of n new tokens, the first at `position` of its text, over a cache of
// the keys and values of the tokens before them.  The keys and values of the new tokens are stored
// in rows [position, position + n) of the cache.
//
// Packed q, k and v, heads and formulas are those of kernels/attention.h; keys and values are rows
// of the cache.  For new query i, per b and h:
//   s[j] = scale * sum_d q[i,d] keys[j,d]     for min(first[b], position + i) <= j <= position + i
//   y[i,d] = sum_j exp(s[j]) values[j,d] / sum_j exp(s[j])
// `first` is where the text of row b begins, after padding at the left; absent, it is 0.  A query
// in the padding sees its own key alone, so its result is finite; the padding's rows of the cache,
// which may be read, must be finite too.  A negative `first` is an error on the cpu, and 0 on cuda.
//
// `place`, if present, has the position of the one new token in device memory, so that a replayed
// graph reads another each time; `position` is then the most that it may be.  Beyond [0, position]
// it is an error on the cpu, and the nearest in it on cuda.  The result has the same bits.
// What is written shares no memory with other arguments.

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
  View first = {};       // i32 (B), or absent
  View place = {};       // i32 (1), or absent
  View workspace = {};

  void check_arguments() const;
  Cost cost() const;
  // Depends on P, not on the position, so every step of a text needs the same.
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

// The extents of the arguments; throws if they do not fit each other.
struct CachedExtents : AttentionExtents {
  int64_t P = 0;

  explicit CachedExtents(const CachedAttention&);
  // Offset of a row of the cache in keys and in values, in elements.
  int64_t row(int64_t b, int64_t kv, int64_t at) const { return ((b * Hkv + kv) * P + at) * D; }
};

void run(const CachedAttention&, CpuStream&);
void run(const CachedAttention&, CudaStream&);

}  // namespace spool
