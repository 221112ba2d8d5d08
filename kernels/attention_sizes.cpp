#include "spool/kernels/attention_sizes.h"

#include "spool/runtime/check.h"
#include "spool/runtime/integer.h"

namespace spool::cuda {
namespace {

AttentionShape shape_of_part(const AttentionShape& all, const AttentionCut& cut) {
  return {.B = cut.texts,
          .T = all.T,
          .H = cut.key_heads * (all.H / all.Hkv),
          .Hkv = cut.key_heads,
          .D = all.D};
}

// Bytes that cuDNN's backward keeps besides delta.
int64_t known_bytes(const AttentionShape& s, FusedBackwardKind kind) {
  constexpr int64_t some_rows = 8;
  const bool hopper = kind.major == 9, blackwell = kind.major == 10, shared = s.H != s.Hkv;
  const int64_t heads = s.B * s.H, values = heads * s.T * s.D;
  if (kind.order == SumOrder::fixed) {
    if (blackwell) return shared ? 2 * 4 * values : 0;  // dk and dv of every query head, f32
    return stored_score_bytes(s, kind) + (shared ? 2 * 2 * values : 0);
  }
  const int64_t dq = 4 * values;
  const int64_t second_dq = hopper || blackwell ? 0 : 4 * heads * round_up(s.T, some_rows) * s.D;
  return dq + second_dq + (shared ? 2 * 2 * values : 0);
}

// The reason against cuDNN, forward and backward; null if there is none.  Rows of lse begin at
// multiples of 16 bytes, in the part and in the whole.
const char* against_cudnn(const AttentionShape& s, DType type, const View& first, int64_t max_head,
                          const CudaArchitecture& architecture) {
  if (type != DType::bf16) return "values are not bf16";
  if (!architecture.fused_attention) return "without cuDNN";
  if (first) return "rows hold several texts";
  if (s.D % 8 != 0 || s.D > max_head) return "cuDNN does not take heads of this size here";
  if (s.T % 4 != 0) return "rows are not of a multiple of 4 tokens";
  return s.B == 0 || s.T == 0 ? "there are no tokens" : nullptr;
}

const char* against_cudnn(const AttentionForward& k, const CudaArchitecture& architecture) {
  constexpr int64_t max_head = 256;
  return against_cudnn(attention_shape(k.qkv, k.y, k.heads), k.qkv.dtype(), k.first, max_head,
                       architecture);
}

const char* against_cudnn(const AttentionBackward& k, const CudaArchitecture& architecture) {
  const AttentionShape all = attention_shape(k.qkv, k.y, k.heads);
  const int64_t max_head = architecture.major == 9 ? 256 : 128;
  if (const char* why = against_cudnn(all, k.qkv.dtype(), k.first, max_head, architecture)) {
    return why;
  }
  if (!k.dqkv) return "no gradient is wanted";
  if (k.dqkv.accumulate) return "the gradient is added to another";
  if (k.dqkv.view.dtype() != DType::bf16) return "the gradient is not bf16";
  return k.parts <= all.B * all.Hkv ? nullptr : "the plan leaves it to Spool's kernels";
}

template <class Kernel>
const char* against_tensor_cores(const Kernel& k) {
  const AttentionShape s = attention_shape(k.qkv, k.y, k.heads);
  if (k.qkv.dtype() != DType::bf16) return "values are not bf16";
  if (s.D % 16 != 0 || s.D > 128) return "tensor cores take heads of 16 to 128 in steps of 16";
  return s.B == 0 || s.T == 0 ? "there are no tokens" : nullptr;
}

template <class Kernel>
AttentionChoice choose(const Kernel& k, const CudaArchitecture& architecture) {
  const char* cudnn = against_cudnn(k, architecture);
  if (!cudnn) return {.method = AttentionMethod::cudnn};
  const char* tensor_cores = against_tensor_cores(k);
  return {.method = tensor_cores ? AttentionMethod::plain : AttentionMethod::tensor_cores,
          .against_cudnn = cudnn,
          .against_tensor_cores = tensor_cores};
}

}  // namespace

AttentionShape attention_shape(const View& qkv, const View& y, const Heads& heads) {
  const AttentionExtents e(qkv, y, heads);
  return {.B = e.B, .T = e.T, .H = e.H, .Hkv = e.Hkv, .D = e.D};
}

FusedBackwardKind kind_of(const AttentionBackward& k, const CudaArchitecture& architecture) {
  return {.order = k.order, .major = architecture.major};
}

size_t fused_forward_bytes(const AttentionShape&) { return size_t{1} << 20; }

int64_t stored_score_bytes(const AttentionShape& s, FusedBackwardKind kind) {
  constexpr int64_t tile = 64, blackwell = 10;
  const int64_t T = round_up(s.T, tile);
  return kind.order == SumOrder::fixed && kind.major != blackwell ? 2 * s.B * s.H * T * T : 0;
}

// cuDNN 9.18 to 9.28, and their frontend, which keeps delta and, for sums in any order, dq in f32.
// A sixteenth is added for other versions.
size_t fused_backward_bytes(const AttentionShape& s, FusedBackwardKind kind) {
  constexpr int64_t spare = int64_t{1} << 20;
  const int64_t known = 4 * s.B * s.H * s.T + known_bytes(s, kind);
  return static_cast<size_t>(known + known / 16 + spare);
}

size_t fused_backward_bytes(const AttentionShape& all, FusedBackwardKind kind,
                            const AttentionCut& cut) {
  return fused_backward_bytes(shape_of_part(all, cut), kind);
}

AttentionCut cut_backward(const AttentionShape& all, int64_t parts) {
  const int64_t of_a_text = std::clamp<int64_t>(parts / all.B, 1, all.Hkv);
  return {.texts = ceil_div(all.B, std::min(parts, all.B)),
          .key_heads = ceil_div(all.Hkv, of_a_text)};
}

}  // namespace spool::cuda

namespace spool {

std::string AttentionChoice::why() const {
  if (!against_cudnn) return "";
  const bool differ = against_tensor_cores && std::string(against_tensor_cores) != against_cudnn;
  return differ ? sentence(against_cudnn, "; ", against_tensor_cores) : against_cudnn;
}

AttentionChoice choose_attention(const AttentionForward& k, const CudaArchitecture& architecture) {
  return cuda::choose(k, architecture);
}

AttentionChoice choose_attention(const AttentionBackward& k, const CudaArchitecture& architecture) {
  return cuda::choose(k, architecture);
}

}  // namespace spool
