#include "spool/kernels/attention.h"

#include <algorithm>

#include "spool/kernels/arguments.h"
#include "spool/kernels/attention_sizes.h"
#include "spool/kernels/cpu/attention_workspace.h"
#include "spool/kernels/cpu/scalar.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// Number of (query, key it sees, head) triples.
double count_pairs(const View& lse, Mask mask) {
  const auto T = static_cast<double>(lse.shape().row()), all = static_cast<double>(lse.numel());
  return mask == Mask::causal ? all * (T + 1) / 2 : all * T;
}

double head_size(const View& y, const Heads& heads) {
  return static_cast<double>(y.shape().row() / heads.query);
}

}  // namespace

AttentionExtents::AttentionExtents(const View& qkv, const View& y, Heads heads)
    : B(qkv.shape()[0]), T(qkv.shape()[1]), H(heads.query), Hkv(heads.key) {
  check(H > 0 && Hkv > 0 && H % Hkv == 0, "attention: ", H, " query heads are not a multiple of ",
        Hkv, " key heads");
  D = y.shape().row() / H;
  check(qkv.shape() == Shape{B, T, packed() * D} && y.shape() == Shape{B, T, H * D},
        "attention: qkv ", qkv.shape(), " with ", H, " query heads and ", Hkv,
        " key heads does not fit y ", y.shape());
}

void AttentionForward::check_arguments() const {
  const Arguments all(name);
  all.present("qkv", qkv, floating);
  all.present("y", y, qkv.dtype());
  const AttentionExtents e(qkv, y, heads);
  all.elements("lse", lse, accumulator(qkv.dtype()), e.B * e.H * e.T);
  all.apart("y", y, {{"qkv", qkv}, {"lse", lse}});
  all.apart("lse", lse, {{"qkv", qkv}});
}

void AttentionBackward::check_arguments() const {
  const Arguments all(name);
  all.present("qkv", qkv, floating);
  const DType type = qkv.dtype();
  all.present("y", y, type);
  const AttentionExtents e(qkv, y, heads);
  all.rows("dy", dy, type, e.B * e.T, e.H * e.D);
  all.elements("lse", lse, accumulator(type), e.B * e.H * e.T);
  if (!dqkv) return;
  all.rows("dqkv", dqkv.view, gradient_of(type), e.B * e.T, e.packed() * e.D);
  all.apart("dqkv", dqkv.view, {{"dy", dy}, {"qkv", qkv}, {"y", y}, {"lse", lse}});
}

Cost AttentionForward::cost() const {
  return {count_pairs(lse, mask) * (4 * head_size(y, heads) + exponential_flops),
          bytes(y, lse, qkv), qkv.dtype()};
}

Cost AttentionBackward::cost() const {
  return {count_pairs(lse, mask) * (10 * head_size(y, heads) + exponential_flops),
          bytes(dqkv, dy, qkv, y, lse), qkv.dtype()};
}

size_t AttentionForward::workspace_bytes(const CpuArchitecture& architecture) const {
  const AttentionExtents e(qkv, y, heads);
  size_t bytes = 0;
  cpu::dispatch(qkv.dtype(), [&](auto x) {
    cpu::Carver lane;
    cpu::ForwardLane<cpu::accumulator_t<decltype(x)>>(lane, e.D);
    bytes = lane.used() * static_cast<size_t>(architecture.threads);
  });
  return bytes;
}

size_t AttentionBackward::workspace_bytes(const CpuArchitecture& architecture) const {
  if (!dqkv) return 0;
  const AttentionExtents e(qkv, y, heads);
  cpu::Carver shared, lane;
  cpu::dispatch(qkv.dtype(), [&](auto x) {
    using S = cpu::accumulator_t<decltype(x)>;
    cpu::BackwardShared<S>(shared, e, dqkv.view.dtype() != dtype_of<S>());
    cpu::BackwardLane<S>(lane, e.D);
  });
  return shared.used() + lane.used() * static_cast<size_t>(architecture.threads);
}

size_t AttentionForward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) return 0;
  return cuda::fused_forward_bytes(cuda::attention_shape(qkv, y, heads));
}

// Without cuDNN: delta, f32 (B, H, T).
size_t AttentionBackward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (!cuda::is_fused(*this, architecture)) {
    return dqkv ? static_cast<size_t>(lse.numel()) * sizeof(float) : 0;
  }
  const cuda::AttentionShape all = cuda::attention_shape(qkv, y, heads);
  return cuda::fused_backward_bytes(all, cuda::cut_backward(all));
}

}  // namespace spool

namespace spool::cuda {
namespace {

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

// The same number of parts as parts of at most `max_size` need, but of nearly equal size.
int64_t even_size(int64_t extent, int64_t max_size) {
  return ceil_div(extent, ceil_div(extent, max_size));
}

// Whether cuDNN supports the shape and type, forward and backward.  Rows of lse begin at multiples
// of 16 bytes, in the part and in the whole.
bool is_supported(const AttentionShape& s, DType type, const CudaArchitecture& architecture) {
  return architecture.fused_attention && type == DType::bf16 && s.D % 8 == 0 && s.D <= 128 &&
         s.T % 4 == 0 && s.B > 0 && s.T > 0;
}

}  // namespace

AttentionShape attention_shape(const View& qkv, const View& y, const Heads& heads) {
  const AttentionExtents e(qkv, y, heads);
  return {.B = e.B, .T = e.T, .H = e.H, .Hkv = e.Hkv, .D = e.D};
}

size_t fused_forward_bytes(const AttentionShape&) { return size_t{1} << 20; }

// cuDNN 9.19 keeps delta, dq in f32, dk and dv of every query head where key heads are shared, and
// the derivatives of the scores, all in whole tiles.  A sixteenth is added for other versions.
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
  return {.texts = even_size(all.B, cut.texts), .key_heads = even_size(all.Hkv, cut.key_heads)};
}

bool is_fused(const AttentionForward& k, const CudaArchitecture& architecture) {
  return is_supported(attention_shape(k.qkv, k.y, k.heads), k.qkv.dtype(), architecture);
}

bool is_fused(const AttentionBackward& k, const CudaArchitecture& architecture) {
  const AttentionShape all = attention_shape(k.qkv, k.y, k.heads);
  return is_supported(all, k.qkv.dtype(), architecture) && k.dqkv.view.dtype() == DType::bf16 &&
         !k.dqkv.accumulate && fits(all, cut_backward(all), max_attention_bytes);
}

}  // namespace spool::cuda
