#include "spool/kernels/swiglu.h"

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct SwigluOp final : Op {
  const char* name() const override { return "swiglu"; }
  OpKind kind() const override { return OpKind::activation; }
  const char* indices() const override { return "n(i+i)->ni"; }

  Specs infer(const Specs& in) const override {
    const Spec& x = in[0];
    const int64_t row = x.shape.row();
    check(row % 2 == 0, "swiglu: rows of ", x,
          " are gates and as many numbers that they are for, so their length must be even");
    return {{x.shape.with(-1, row / 2), x.dtype}};
  }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(SwigluForward{.y = y, .x = x});
  }

  Slots saves(const Needs&) const override { return {in(0)}; }

  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(SwigluBackward{.dx = b.grad_input(0), .dy = dy, .x = x});
  }
};

}  // namespace

Var swiglu(const Var& gate_up) { return apply<SwigluOp>(gate_up.tape(), {gate_up}); }

}  // namespace spool
