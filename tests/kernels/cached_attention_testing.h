#pragma once

// Attention over a cache, on any device.

#include "spool/kernels/cached_attention.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

// Attention of the tokens of qkv (B, n, ...) at a position of a text, over caches (B, Hkv, P, D).
inline Tensor attend(const Tensor& keys, const Tensor& values, const Tensor& qkv,
                     const Heads& heads, int64_t position, double scale) {
  const Shape shape{qkv.shape()[0], qkv.shape()[1], heads.query * keys.shape()[3]};
  Tensor y = unset(shape, qkv.dtype(), qkv.stream());
  launch(CachedAttention{.y = y,
                         .keys = keys,
                         .values = values,
                         .qkv = qkv,
                         .heads = heads,
                         .position = position,
                         .scale = scale},
         qkv.stream());
  return y;
}

// The peak memory of attention of n tokens at a position of a cache of 500.
inline size_t attention_peak(int64_t n, int64_t position, Stream& stream) {
  const Tensor keys({Shape{1, 2, 500, 8}}, stream), values({Shape{1, 2, 500, 8}}, stream);
  launch(Fill{.out = keys}, stream);
  launch(Fill{.out = values}, stream);
  const Tensor qkv = normal({1, n, 6 * 8}, DType::f32, stream, 1);
  const Tensor y = attend(keys, values, qkv, {.query = 2, .key = 2}, position, 1);
  stream.synchronize();
  return stream.memory().peak;
}

}  // namespace spool::testing
