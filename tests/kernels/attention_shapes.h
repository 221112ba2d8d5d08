#pragma once

// Shapes of attention, and kernels of these shapes without memory, for decisions that depend on
// shapes, types and the architecture alone.

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "spool/kernels/attention_sizes.h"

namespace spool::testing {

// A view that is present, without memory behind it.
inline View without_memory(const Shape& shape, DType type) {
  static std::byte somewhere;
  return {&somewhere, {shape, type}};
}

inline AttentionForward forward_of(const cuda::AttentionShape& s, DType type = DType::bf16) {
  return {.y = without_memory({s.B, s.T, s.H * s.D}, type),
          .lse = without_memory({s.B, s.H, s.T}, DType::f32),
          .qkv = without_memory({s.B, s.T, (s.H + 2 * s.Hkv) * s.D}, type),
          .heads = {.query = s.H, .key = s.Hkv}};
}

struct BackwardOptions {
  DType type = DType::bf16, gradient = DType::bf16;
  bool add = false;
  SumOrder order = SumOrder::fixed;
  int64_t parts = 1;
};

inline AttentionBackward backward_of(const cuda::AttentionShape& s,
                                     const BackwardOptions& options = {}) {
  const AttentionForward f = forward_of(s, options.type);
  return {.dqkv = Grad(without_memory(f.qkv.shape(), options.gradient), options.add),
          .dy = f.y,
          .qkv = f.qkv,
          .y = f.y,
          .lse = f.lse,
          .heads = f.heads,
          .order = options.order,
          .parts = options.parts};
}

// The shapes that tests give to cuDNN or its stand-in.
inline std::vector<cuda::AttentionShape> tested_shapes() {
  return {{.B = 1, .T = 4, .H = 1, .Hkv = 1, .D = 8},
          {.B = 3, .T = 20, .H = 4, .Hkv = 4, .D = 16},
          {.B = 3, .T = 12, .H = 6, .Hkv = 3, .D = 8},
          {.B = 2, .T = 36, .H = 4, .Hkv = 1, .D = 24},
          {.B = 2, .T = 8, .H = 2, .Hkv = 2, .D = 8},
          {.B = 2, .T = 16, .H = 2, .Hkv = 2, .D = 8},
          {.B = 2, .T = 128, .H = 4, .Hkv = 4, .D = 48},
          {.B = 4, .T = 132, .H = 3, .Hkv = 3, .D = 72},
          {.B = 7, .T = 2048, .H = 32, .Hkv = 8, .D = 128},
          {.B = 3, .T = 8192, .H = 16, .Hkv = 16, .D = 64},
          {.B = 2, .T = 4096, .H = 25, .Hkv = 5, .D = 80},
          {.B = 1, .T = 8000, .H = 6, .Hkv = 3, .D = 64}};
}

// The shapes of the presets of GPT-2, and of layers of larger models.
inline std::vector<cuda::AttentionShape> shapes_of_models() {
  std::vector<cuda::AttentionShape> all;
  for (const int64_t heads : {12, 16, 20, 25}) {
    for (const int64_t B : {1, 4, 8, 32, 64}) {
      all.push_back({.B = B, .T = 1024, .H = heads, .Hkv = heads, .D = 64});
    }
  }
  all.push_back({.B = 8, .T = 256, .H = 4, .Hkv = 4, .D = 32});
  all.push_back({.B = 1, .T = 4096, .H = 28, .Hkv = 4, .D = 128});
  all.push_back({.B = 1, .T = 5248, .H = 32, .Hkv = 8, .D = 128});
  all.push_back({.B = 1, .T = 8192, .H = 32, .Hkv = 8, .D = 128});
  all.push_back({.B = 2, .T = 2048, .H = 16, .Hkv = 8, .D = 256});
  all.push_back({.B = 1, .T = 11136, .H = 12, .Hkv = 12, .D = 64});
  return all;
}

}  // namespace spool::testing
