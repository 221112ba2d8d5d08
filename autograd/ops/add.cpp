#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

struct AddOp final : Op {
  const char* name() const override { return "add"; }
  const char* indices() const override { return "nc,nc->nc"; }

  Specs infer(const Specs& in) const override {
    check(in[0] == in[1], "add: ", in[0], " and ", in[1]);
    return {in[0]};
  }

  void forward(Forward& f) const override {
    auto [a, b] = f.inputs<2>();
    auto [y] = f.outputs<1>();
    f.launch(Add{.out = y, .a = a, .b = b});
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    b.pass(0);
    b.pass(1);
  }
};

}  // namespace

Var add(const Operand& a, const Operand& b) { return apply<AddOp>({a, b}); }

}  // namespace spool
