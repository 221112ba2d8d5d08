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

// The part of the rate of large products that a backward is taken to reach: our own sums for cuDNN
// that stores scores, and for Spool's kernels, which form seven products for its five.  Constants,
// so that what is chosen by them does not depend on what was measured.
constexpr double rate_of_cudnn = 0.3, rate_of_tensor_cores = 0.15;

// How much longer cuDNN takes in parts: a part has a block for so many keys of a query head, and a
// GPU about as many multiprocessors as this.
double slowed_by_parts(const cuda::AttentionShape& s, int64_t parts) {
  constexpr int64_t keys = 128, multiprocessors = 132;
  const auto waves = [&](int64_t heads) {
    return ceil_div(heads * ceil_div(s.T, keys), multiprocessors);
  };
  int64_t in_parts = 0;
  cuda::cut_backward(s, parts).for_each_part(s, [&](const cuda::AttentionPart& part) {
    in_parts += waves(part.texts.size() * part.key_heads.size() * (s.H / s.Hkv));
  });
  return static_cast<double>(in_parts) / static_cast<double>(waves(s.B * s.H));
}

}  // namespace

// Products on the cuda cores are of f32 numbers, whatever the type of the values.
Cost AttentionForward::cost(const CudaArchitecture& architecture) const {
  Cost cost = this->cost();
  if (choose_attention(*this, architecture).method == AttentionMethod::plain) {
    cost.dtype = DType::f32;
  }
  return cost;
}

// cuDNN writes what it adds in a fixed order, and reads it again.
Cost AttentionBackward::cost(const CudaArchitecture& architecture) const {
  Cost cost = this->cost();
  const auto shape = [this] { return cuda::attention_shape(qkv, y, heads); };
  size_t between = 0;  // written and read once each
  switch (choose_attention(*this, architecture).method) {
    case AttentionMethod::cudnn:
      between = cuda::stored_score_bytes(shape(), cuda::kind_of(*this, architecture));
      cost.flops *= slowed_by_parts(shape(), parts) / rate_of_cudnn;
      break;
    case AttentionMethod::tensor_cores:
      if (dqkv) between = cuda::dkeys_parts_bytes(shape());
      cost.flops /= rate_of_tensor_cores;
      break;
    case AttentionMethod::plain:
      cost.dtype = DType::f32;
  }
  cost.bytes += 2 * static_cast<double>(between);
  return cost;
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
  return cuda::fused_backward_bytes(all, kind, cuda::cut_backward(all, parts));
}

}  // namespace spool
