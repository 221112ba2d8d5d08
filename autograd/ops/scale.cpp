#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct ScaleOp final : Op {
  double factor;
  explicit ScaleOp(double by) : factor(by) {}

  const char* name() const override { return "scale"; }
  std::string attributes() const override { return in_words({{"factor", factor}}); }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Scale{.out = y, .a = x, .factor = factor});
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    const Grad dx = b.grad_input_over(0, 0);
    if (dx.view.dtype() == dy.dtype()) {
      return b.launch(Scale{.out = dx, .a = dy, .factor = factor});
    }
    const Tensor own = b.scratch(dy.spec());  // dx is a parameter's, of another type
    b.launch(Scale{.out = own, .a = dy, .factor = factor});
    b.launch(Add{.out = dx, .a = own});
  }
};

}  // namespace

Var scale(const Var& x, double factor) { return apply<ScaleOp>(x.tape(), {x}, factor); }

}  // namespace spool
