#include "spool/kernels/attention.h"

#include <cmath>

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct Attention final : Op {
  Heads heads;
  Mask mask;
  Attention(Heads h, Mask m) : heads(h), mask(m) {}

  const char* name() const override { return "attention"; }
  OpKind kind() const override { return OpKind::attention; }
  std::string attributes() const override {
    const std::string words = in_words({{"query heads", heads.query}, {"key heads", heads.key}});
    return mask == Mask::causal ? words : words + ", mask " + spool::name(mask);
  }
  const char* indices() const override { return "bTP->bTQ,bHT"; }

  Specs infer(const Specs& in) const override {
    const Spec& qkv = in[0];
    const auto [H, Hkv] = heads;
    check(qkv.shape.rank() == 3, "attention: packed q, k and v must be (B, T, (H + 2 Hkv) D), not ",
          qkv);
    check(H > 0 && Hkv > 0 && H % Hkv == 0, "attention: ", H, " query heads cannot share ", Hkv,
          " key heads");
    const int64_t B = qkv.shape[0], T = qkv.shape[1], packed = H + 2 * Hkv;
    check(qkv.shape[2] % packed == 0, "attention: ", qkv, " does not divide into ", packed,
          " heads");
    return {{Shape{B, T, qkv.shape[2] / packed * H}, qkv.dtype},
            {Shape{B, H, T}, accumulator(qkv.dtype)}};
  }

  void forward(Forward& f) const override {
    auto [qkv] = f.inputs<1>();
    auto [y, lse] = f.outputs<2>();
    f.launch(AttentionForward{
        .y = y, .lse = lse, .qkv = qkv, .heads = heads, .scale = scale_of(y), .mask = mask});
  }

  Slots saves(const Needs&) const override { return {in(0), out(0), out(1)}; }

  void backward(Backward& b) const override {
    auto [qkv, y, lse] = b.saved<3>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(AttentionBackward{.dqkv = b.grad_input(0),
                               .dy = dy,
                               .qkv = qkv,
                               .y = y,
                               .lse = lse,
                               .heads = heads,
                               .scale = scale_of(y),
                               .mask = mask});
  }

 private:
  double scale_of(const View& y) const {
    return 1 / std::sqrt(static_cast<double>(y.shape().row() / heads.query));
  }
};

}  // namespace

Var attention(const Var& qkv, Heads heads, Mask mask) {
  return apply<Attention>(qkv.tape(), {qkv}, heads, mask);
}

}  // namespace spool
