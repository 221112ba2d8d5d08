#include "spool/kernels/head_norm.h"

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/packed_heads.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct HeadNormOp final : Op {
  PackedHeads heads;
  double eps;
  std::string notation;
  HeadNormOp(const PackedHeads& h, double e)
      : heads(h),
        eps(e),
        notation(fmt::format("n{0},D,D->n{0},n({1}h+h)", h.packed(), h.group())) {}

  const char* name() const override { return "head_norm"; }
  OpKind kind() const override { return OpKind::norm; }
  std::string attributes() const override {
    return heads.attributes() + ", " + in_words({{"eps", eps}});
  }
  const char* indices() const override { return notation.c_str(); }

  Specs infer(const Specs& in) const override {
    const Spec& qkv = in[0];
    const auto [H, Hkv] = heads.in(qkv.shape.row());
    const int64_t packed = H + 2 * Hkv, row = qkv.shape.row();
    check(H > 0 && Hkv > 0 && row % packed == 0, "head_norm: ", qkv, " does not divide into ",
          packed, " heads");
    const Spec weight{Shape{row / packed}, qkv.dtype};
    check(in[1] == weight && in[2] == weight, "head_norm: weights of ", in[1], " and ", in[2],
          " for ", qkv, "; both must be ", weight);
    return {qkv, {Shape{qkv.shape.rows(), H + Hkv}, accumulator(qkv.dtype)}};
  }

  void forward(Forward& f) const override {
    auto [qkv, query, key] = f.inputs<3>();
    auto [y, r] = f.outputs<2>();
    f.launch(HeadNormForward{.y = y,
                             .r = r,
                             .x = qkv,
                             .query = query,
                             .key = key,
                             .heads = heads.in(qkv.shape().row()),
                             .eps = eps});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1), in(2), out(1)}; }

  void backward(Backward& b) const override {
    auto [qkv, query, key, r] = b.saved<4>();
    auto [dy] = b.grad_outputs<1>();
    const auto [gradient, dquery, dkey] = b.grad_inputs<3>();
    // A parameter's gradient may be of another type than qkv.
    const bool converts = gradient && gradient.view.dtype() != qkv.dtype();
    const Tensor own = converts ? b.scratch(qkv.spec()) : Tensor();
    b.launch(HeadNormBackward{.dx = converts ? Grad(own) : gradient,
                              .dquery = dquery,
                              .dkey = dkey,
                              .dy = dy,
                              .x = qkv,
                              .query = query,
                              .key = key,
                              .r = r,
                              .heads = heads.in(qkv.shape().row())});
    if (converts) b.launch(Add{.out = gradient, .a = own});
  }
};

}  // namespace

Var head_norm(const Var& qkv, const Operand& query, const Operand& key, Heads heads, double eps) {
  return apply<HeadNormOp>(qkv.tape(), {qkv, query, key}, PackedHeads(heads, qkv.shape().row()),
                           eps);
}

}  // namespace spool
