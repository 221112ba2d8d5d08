#include "spool/autograd/ops.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/matmul.h"

namespace spool {
namespace {

struct Linear final : Op {
  const char* name() const override { return "linear"; }
  OpKind kind() const override { return OpKind::product; }
  const char* indices() const override { return "nk,ok,+o->no"; }

  Specs infer(const Specs& in) const override {
    const Spec &x = in[0], &weight = in[1];
    const bool fits = weight.shape.rank() == 2 && x.shape.row() == weight.shape.row();
    check(fits && x.dtype == weight.dtype, "linear: ", x, " by ", weight);
    const int64_t O = weight.shape[0];
    check(in.size() < 3 || in[2] == Spec{Shape{O}, x.dtype}, "linear: a bias of ", in[2], " for ",
          weight);
    return {{x.shape.with(-1, O), x.dtype}};
  }

  void forward(Forward& f) const override {
    auto [x, weight, bias] = f.inputs<3>();
    auto [y] = f.outputs<1>();
    f.launch(Matmul{.c = y, .a = x, .b = weight, .bias = bias, .b_transposed = true});
  }

  Slots saves(const Needs& needs) const override {
    Slots slots;
    if (needs[0]) slots.push_back(in(1));
    if (needs[1]) slots.push_back(in(0));
    return slots;
  }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    if (b.needs_grad(0)) b.launch(Matmul{.c = b.grad_input(0), .a = dy, .b = b.saved_at(0)});
    if (b.needs_grad(1)) {
      const View x = b.saved_at(b.needs_grad(0) ? 1 : 0);
      const View rows(dy.data(), {Shape{dy.shape().rows(), dy.shape().row()}, dy.dtype()});
      const View flat(x.data(), {Shape{x.shape().rows(), x.shape().row()}, x.dtype()});
      b.launch(Matmul{.c = b.grad_input(1), .a = rows, .b = flat, .a_transposed = true});
    }
    if (Grad dbias = b.grad_input(2)) b.launch(BiasBackward{.dbias = dbias, .dy = dy});
  }
};

}  // namespace

Var linear(const Var& x, const Operand& weight) { return apply<Linear>(x.tape(), {x, weight}); }

Var linear(const Var& x, const Operand& weight, const Operand& bias) {
  return apply<Linear>(x.tape(), {x, weight, bias});
}

}  // namespace spool
