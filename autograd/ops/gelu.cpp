#include "spool/kernels/gelu.h"

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct Gelu final : Op {
  GeluForm form;
  bool has_bias;
  Gelu(GeluForm f, bool bias) : form(f), has_bias(bias) {}

  const char* name() const override { return "gelu"; }
  OpKind kind() const override { return OpKind::activation; }
  std::string attributes() const override { return in_words({{"form", spool::name(form)}}); }
  const char* indices() const override { return "nc,c->nc"; }

  Specs infer(const Specs& in) const override {
    const Spec& x = in[0];
    if (has_bias) {
      check(in[1] == Spec{Shape{x.shape.row()}, x.dtype}, "gelu: a bias of ", in[1], " for ", x);
    }
    return {x};
  }

  void forward(Forward& f) const override {
    auto [x, bias] = f.inputs<2>();
    auto [y] = f.outputs<1>();
    f.launch(GeluForward{.y = y, .x = x, .bias = bias, .form = form});
  }

  Slots saves(const Needs&) const override { return has_bias ? Slots{in(0), in(1)} : Slots{in(0)}; }

  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(GeluBackward{.dx = b.grad_input_over(0, 0),
                          .dy = dy,
                          .x = x,
                          .bias = has_bias ? b.saved_at(1) : View{},
                          .dbias = b.grad_input(1),
                          .form = form});
  }
};

}  // namespace

Var gelu(const Var& x, GeluForm form) { return apply<Gelu>(x.tape(), {x}, form, /*bias=*/false); }

Var gelu(const Var& x, const Operand& bias, GeluForm form) {
  return apply<Gelu>(x.tape(), {x, bias}, form, /*bias=*/true);
}

}  // namespace spool
