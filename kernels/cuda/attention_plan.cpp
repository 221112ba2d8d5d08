#include "spool/kernels/attention_sizes.h"

#include <algorithm>

namespace spool::cuda {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

AttentionShape shape_of_part(const AttentionShape& all, const AttentionCut& cut) {
  return {.B = cut.texts,
          .T = all.T,
          .H = cut.key_heads * (all.H / all.Hkv),
          .Hkv = cut.key_heads,
          .D = all.D};
}

bool fits(const AttentionShape& all, const AttentionCut& cut, size_t max_bytes) {
  return fused_backward_bytes(all, cut) <= max_bytes;
}

// As many parts as there must be at most so large, but of like size.
int64_t even(int64_t extent, int64_t most) { return ceil_div(extent, ceil_div(extent, most)); }

// What cuDNN takes in any form.  Rows of lse begin at multiples of 16 bytes, of part and whole.
bool is_taken(const AttentionShape& s, DType type, const CudaArchitecture& architecture) {
  return architecture.fused_attention && type == DType::bf16 && s.D % 8 == 0 && s.D <= 128 &&
         s.T % 4 == 0 && s.B > 0 && s.T > 0;
}

}  // namespace

AttentionShape attention_shape(const View& qkv, const View& y, const Heads& heads) {
  const AttentionExtents e(qkv, y, heads);
  return {.B = e.B, .T = e.T, .H = e.H, .Hkv = e.Hkv, .D = e.D};
}

size_t fused_forward_bytes(const AttentionShape&) { return size_t{1} << 20; }

// cuDNN 9.19 keeps the sums of dy y, dq in f32, where key heads are shared dk and dv of every query
// head, and the derivatives of the scores.  Its tiles are whole, and a sixteenth is for what other
// versions may want.
size_t fused_backward_bytes(const AttentionShape& s) {
  constexpr int64_t tile = 128, whole = 64, spare = int64_t{1} << 20;
  const int64_t T = round_up(s.T, tile), rows = s.B * s.H * T;
  const int64_t values = rows * round_up(s.D, whole);
  const int64_t shared = s.H == s.Hkv ? 0 : 2 * 2 * values;
  const int64_t known = 4 * rows + 4 * values + shared + 2 * rows * T;
  return static_cast<size_t>(known + known / 16 + spare);
}

size_t fused_backward_bytes(const AttentionShape& all, const AttentionCut& cut) {
  return fused_backward_bytes(shape_of_part(all, cut));
}

AttentionCut cut_backward(const AttentionShape& all, size_t max_bytes) {
  AttentionCut cut{.texts = all.B, .key_heads = all.Hkv};
  while (cut.texts > 1 && !fits(all, cut, max_bytes)) --cut.texts;
  while (cut.key_heads > 1 && !fits(all, cut, max_bytes)) --cut.key_heads;
  return {.texts = even(all.B, cut.texts), .key_heads = even(all.Hkv, cut.key_heads)};
}

bool is_fused(const AttentionForward& k, const CudaArchitecture& architecture) {
  return is_taken(attention_shape(k.qkv, k.y, k.heads), k.qkv.dtype(), architecture);
}

bool is_fused(const AttentionBackward& k, const CudaArchitecture& architecture) {
  const AttentionShape all = attention_shape(k.qkv, k.y, k.heads);
  return is_taken(all, k.qkv.dtype(), architecture) && k.dqkv.view.dtype() == DType::bf16 &&
         !k.dqkv.accumulate && fits(all, cut_backward(all), max_attention_bytes);
}

}  // namespace spool::cuda
