#include "spool/kernels/attention.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/tensor_attention_sizes.h"
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

void check_first(const Arguments& all, const View& first, Mask mask, const AttentionExtents& e) {
  if (!first) return;
  all.rows("first", first, DType::i32, e.B, e.T);
  check(mask == Mask::causal, "attention: first is for a causal mask only");
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
  check_first(all, first, mask, e);
  all.apart("y", y, {{"qkv", qkv}, {"lse", lse}, {"first", first}});
  all.apart("lse", lse, {{"qkv", qkv}, {"first", first}});
}

void AttentionBackward::check_arguments() const {
  const Arguments all(name);
  all.present("qkv", qkv, floating);
  const DType type = qkv.dtype();
  all.present("y", y, type);
  const AttentionExtents e(qkv, y, heads);
  all.rows("dy", dy, type, e.B * e.T, e.H * e.D);
  all.elements("lse", lse, accumulator(type), e.B * e.H * e.T);
  check_first(all, first, mask, e);
  if (!dqkv) return;
  all.rows("dqkv", dqkv.view, gradient_of(type), e.B * e.T, e.packed() * e.D);
  all.apart("dqkv", dqkv.view,
            {{"dy", dy}, {"qkv", qkv}, {"y", y}, {"lse", lse}, {"first", first}});
}

Cost AttentionForward::cost() const {
  return {count_pairs(lse, mask) * (4 * head_size(y, heads) + exponential_flops),
          bytes(y, lse, qkv, first), qkv.dtype()};
}

Cost AttentionBackward::cost() const {
  return {count_pairs(lse, mask) * (10 * head_size(y, heads) + exponential_flops),
          bytes(dqkv, dy, qkv, y, lse, first), qkv.dtype()};
}

namespace {

// Products on the cuda cores are of f32 numbers, whatever the type of the values.
Cost with_rate_of(const AttentionChoice& choice, Cost cost) {
  if (choice.method == AttentionMethod::plain) cost.dtype = DType::f32;
  return cost;
}

}  // namespace

Cost AttentionForward::cost(const CudaArchitecture& architecture) const {
  return with_rate_of(choose_attention(*this, architecture), cost());
}

// cuDNN writes what it adds in a fixed order, and reads it again.
Cost AttentionBackward::cost(const CudaArchitecture& architecture) const {
  const AttentionChoice choice = choose_attention(*this, architecture);
  Cost all = with_rate_of(choice, cost());
  const auto shape = [this] { return cuda::attention_shape(qkv, y, heads); };
  size_t between = 0;  // written and read once each
  if (choice.method == AttentionMethod::cudnn) {
    between = cuda::stored_score_bytes(shape(), cuda::kind_of(*this, architecture));
  } else if (dqkv && choice.method == AttentionMethod::tensor_cores) {
    between = cuda::dkeys_parts_bytes(shape());
  }
  all.bytes += 2 * static_cast<double>(between);
  return all;
}

size_t AttentionForward::workspace_bytes(const CudaArchitecture& architecture) const {
  if (choose_attention(*this, architecture).method != AttentionMethod::cudnn) return 0;
  return cuda::fused_forward_bytes(cuda::attention_shape(qkv, y, heads));
}

// Workspace of Spool's own kernels: delta, f32 (B, H, T), and on tensor cores parts of dk and dv.
size_t AttentionBackward::workspace_bytes(const CudaArchitecture& architecture) const {
  const AttentionMethod method = choose_attention(*this, architecture).method;
  const cuda::AttentionShape all = cuda::attention_shape(qkv, y, heads);
  if (method == AttentionMethod::tensor_cores && dqkv) return cuda::tensor_backward_bytes(all);
  if (method != AttentionMethod::cudnn) {
    return dqkv ? static_cast<size_t>(lse.numel()) * sizeof(float) : 0;
  }
  const cuda::FusedBackwardKind kind = cuda::kind_of(*this, architecture);
  return cuda::fused_backward_bytes(all, kind, cuda::cut_backward(all, kind));
}

}  // namespace spool
