#include "spool/kernels/attention.h"

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/packed_heads.h"

namespace spool {
namespace {

struct Attention final : Op {
  PackedHeads heads;
  Mask mask;
  SumOrder order;
  bool has_first;
  std::string notation;
  Attention(const PackedHeads& h, Mask m, SumOrder o, bool first)
      : heads(h),
        mask(m),
        order(o),
        has_first(first),
        notation(fmt::format("bT{},bT->bT{},b{}T", h.packed(), h.queries(), h.of_each_query())) {}

  const char* name() const override { return "attention"; }
  OpKind kind() const override { return OpKind::attention; }
  std::string attributes() const override {
    std::string words = heads.attributes();
    if (mask != Mask::causal) words += sentence(", mask ", spool::name(mask));
    if (order != SumOrder::fixed) words += sentence(", sum order ", spool::name(order));
    return words;
  }
  const char* indices() const override { return notation.c_str(); }

  Specs infer(const Specs& in) const override {
    const Spec& qkv = in[0];
    const auto [H, Hkv] = heads.in(qkv.shape.row());
    check(qkv.shape.rank() == 3, "attention: packed q, k and v must be (B, T, (H + 2 Hkv) D), not ",
          qkv);
    check(H > 0 && Hkv > 0 && H % Hkv == 0, "attention: ", H, " query heads cannot share ", Hkv,
          " key heads");
    const int64_t B = qkv.shape[0], T = qkv.shape[1], packed = H + 2 * Hkv;
    check(qkv.shape[2] % packed == 0, "attention: ", qkv, " does not divide into ", packed,
          " heads");
    if (has_first) {
      check(in[1] == Spec{Shape{B, T}, DType::i32}, "attention: first keys of ", in[1], " for ",
            qkv, "; they must be ", Spec{Shape{B, T}, DType::i32});
    }
    return {{Shape{B, T, qkv.shape[2] / packed * H}, qkv.dtype},
            {Shape{B, H, T}, accumulator(qkv.dtype)}};
  }

  void forward(Forward& f) const override {
    auto [qkv, first] = f.inputs<2>();
    auto [y, lse] = f.outputs<2>();
    f.launch(AttentionForward{.y = y,
                              .lse = lse,
                              .qkv = qkv,
                              .heads = heads.in(qkv.shape().row()),
                              .scale = heads.scale(),
                              .mask = mask,
                              .first = first});
  }

  Slots saves(const Needs&) const override {
    if (has_first) return {in(0), out(0), out(1), in(1)};
    return {in(0), out(0), out(1)};
  }

  void backward(Backward& b) const override {
    auto [qkv, y, lse] = b.saved<3>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(AttentionBackward{.dqkv = b.grad_input(0),
                               .dy = dy,
                               .qkv = qkv,
                               .y = y,
                               .lse = lse,
                               .heads = heads.in(qkv.shape().row()),
                               .scale = heads.scale(),
                               .mask = mask,
                               .first = has_first ? b.saved_at(3) : View{},
                               .order = order,
                               .parts = b.chunks()});
  }

  // A part for each key head of each text; one more leaves backward to Spool's kernels.
  int64_t max_parts(const Specs& in) const override {
    return in[0].shape[0] * heads.in(in[0].shape.row()).key + 1;
  }
};

}  // namespace

Var attention(const Var& qkv, Heads heads, Mask mask, SumOrder order) {
  return apply<Attention>(qkv.tape(), {qkv}, PackedHeads(heads, qkv.shape().row()), mask, order,
                          /*first=*/false);
}

Var attention(const Var& qkv, Heads heads, const Var& first, SumOrder order) {
  if (!first) return attention(qkv, heads, Mask::causal, order);
  return apply<Attention>(qkv.tape(), {qkv, first}, PackedHeads(heads, qkv.shape().row()),
                          Mask::causal, order, /*first=*/true);
}

}  // namespace spool
