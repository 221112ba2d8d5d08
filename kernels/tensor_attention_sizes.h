#pragma once

// Division of attention backward on tensor cores: a block computes dk and dv of a tile of keys of
// one key head, from all query heads that share it or, where that makes too few blocks for a GPU,
// from some of them.  Then each part of the query heads has dk and dv of its own in the workspace,
// and the parts are added in order.  The number of parts depends on the shape alone.

#include "spool/kernels/attention_sizes.h"
#include "spool/runtime/integer.h"

namespace spool::cuda {

// Two for each multiprocessor of the largest GPUs.
constexpr int64_t wanted_dkeys_blocks = 264;

// Keys in a tile.
constexpr int64_t dkeys_tile(int64_t D) { return D <= 64 ? 128 : 64; }

// The query heads of a part, and the number of parts; the last part may have fewer heads.
struct DkeysParts {
  int64_t heads, count;
};

constexpr DkeysParts dkeys_parts(const AttentionShape& s) {
  const int64_t blocks = s.B * s.Hkv * ceil_div(s.T, dkeys_tile(s.D)), group = s.H / s.Hkv;
  const int64_t heads = std::max<int64_t>(group / ceil_div(wanted_dkeys_blocks, blocks), 1);
  return {heads, ceil_div(group, heads)};
}

// Where the parts begin in the workspace, in floats: after delta (B, H, T), at a multiple of 16
// bytes.
constexpr int64_t dkeys_parts_begin(const AttentionShape& s) {
  return round_up<int64_t>(s.B * s.H * s.T, 4);
}
// Bytes of the parts, f32 (parts, B, T, 2 Hkv, D).  A part alone is written to the gradient.
constexpr size_t dkeys_parts_bytes(const AttentionShape& s) {
  const int64_t count = dkeys_parts(s).count, each = s.B * s.T * 2 * s.Hkv * s.D;
  return count > 1 ? static_cast<size_t>(count * each) * sizeof(float) : 0;
}

// Workspace, in bytes.
constexpr size_t tensor_backward_bytes(const AttentionShape& s) {
  const size_t parts = dkeys_parts_bytes(s);
  const int64_t delta = parts > 0 ? dkeys_parts_begin(s) : s.B * s.H * s.T;
  return static_cast<size_t>(delta) * sizeof(float) + parts;
}

}  // namespace spool::cuda
