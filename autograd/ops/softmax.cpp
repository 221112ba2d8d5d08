#include "spool/kernels/softmax.h"

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct Softmax final : Op {
  const char* name() const override { return "softmax"; }
  OpKind kind() const override { return OpKind::activation; }
  const char* indices() const override { return "nC->nC"; }

  Specs infer(const Specs& in) const override {
    check(in[0].shape.row() > 0, name(), ": a row of ", in[0],
          " has no elements; it needs one or more");
    return {in[0]};
  }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(SoftmaxForward{.y = y, .x = x});
  }

  Slots saves(const Needs&) const override { return {out(0)}; }

  void backward(Backward& b) const override {
    auto [y] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(SoftmaxBackward{.dx = b.grad_input_over(0, 0), .dy = dy, .y = y});
  }
};

}  // namespace

Var softmax(const Operand& x) { return apply<Softmax>({x}); }

}  // namespace spool
