#include "spool/kernels/layer_norm.h"

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct LayerNorm final : Op {
  double eps;
  explicit LayerNorm(double e) : eps(e) {}

  const char* name() const override { return "layer_norm"; }
  OpKind kind() const override { return OpKind::norm; }
  std::string attributes() const override { return in_words({{"eps", eps}}); }
  const char* indices() const override { return "nC,C,C->nC,n,n"; }

  Specs infer(const Specs& in) const override {
    const Spec& x = in[0];
    const Spec row{Shape{x.shape.row()}, x.dtype};
    check(in[1] == row && in[2] == row, "layer_norm: ", x, " by ", in[1], " and ", in[2]);
    const Spec statistic{Shape{x.shape.rows()}, accumulator(x.dtype)};
    return {x, statistic, statistic};
  }

  void forward(Forward& f) const override {
    auto [x, weight, bias] = f.inputs<3>();
    auto [y, mean, rstd] = f.outputs<3>();
    f.launch(LayerNormForward{
        .y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .eps = eps});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1), out(1), out(2)}; }

  void backward(Backward& b) const override {
    auto [x, weight, mean, rstd] = b.saved<4>();
    auto [dy] = b.grad_outputs<1>();
    const auto [gradient, dweight, dbias] = b.grad_inputs<3>();
    // A parameter's gradient may be of another type than x.
    const bool converts = gradient && gradient.view.dtype() != x.dtype();
    const Tensor own = converts ? b.scratch(x.spec()) : Tensor();
    b.launch(LayerNormBackward{.dx = converts ? Grad(own) : gradient,
                               .dweight = dweight,
                               .dbias = dbias,
                               .dy = dy,
                               .x = x,
                               .weight = weight,
                               .mean = mean,
                               .rstd = rstd});
    if (converts) b.launch(Add{.out = gradient, .a = own});
  }
};

}  // namespace

Var layer_norm(const Var& x, const Operand& weight, const Operand& bias, double eps) {
  return apply<LayerNorm>(x.tape(), {x, weight, bias}, eps);
}

}  // namespace spool
