#include "spool/kernels/rms_norm.h"

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct RmsNormOp final : Op {
  double eps;
  explicit RmsNormOp(double e) : eps(e) {}

  const char* name() const override { return "rms_norm"; }
  OpKind kind() const override { return OpKind::norm; }
  std::string attributes() const override { return in_words({{"eps", eps}}); }
  const char* indices() const override { return "nC,C->nC,n"; }

  Specs infer(const Specs& in) const override {
    const Spec& x = in[0];
    const Spec row{Shape{x.shape.row()}, x.dtype};
    check(in[1] == row, "rms_norm: a weight of ", in[1], " for ", x, "; it must be ", row);
    return {x, {Shape{x.shape.rows()}, accumulator(x.dtype)}};
  }

  void forward(Forward& f) const override {
    auto [x, weight] = f.inputs<2>();
    auto [y, r] = f.outputs<2>();
    f.launch(RmsNormForward{.y = y, .r = r, .x = x, .weight = weight, .eps = eps});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1), out(1)}; }

  void backward(Backward& b) const override {
    auto [x, weight, r] = b.saved<3>();
    auto [dy] = b.grad_outputs<1>();
    const auto [gradient, dweight] = b.grad_inputs<2>();
    // A parameter's gradient may be of another type than x.
    const bool converts = gradient && gradient.view.dtype() != x.dtype();
    const Tensor own = converts ? b.scratch(x.spec()) : Tensor();
    b.launch(RmsNormBackward{.dx = converts ? Grad(own) : gradient,
                             .dweight = dweight,
                             .dy = dy,
                             .x = x,
                             .weight = weight,
                             .r = r});
    if (converts) b.launch(Add{.out = gradient, .a = own});
  }
};

}  // namespace

Var rms_norm(const Var& x, const Operand& weight, double eps) {
  return apply<RmsNormOp>(x.tape(), {x, weight}, eps);
}

}  // namespace spool
