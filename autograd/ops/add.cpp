#include "spool/autograd/ops.h"
#include "spool/autograd/ops/map.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/functors.h"

namespace spool {
namespace {

// Adds two operands of one shape; both get the gradient of the result.
struct AddOp final : Op {
  const char* name() const override { return "add"; }
  const char* indices() const override { return "nc,nc->nc"; }

  Specs infer(const Specs& in) const override { return {in[0]}; }

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

Var add(const Operand& a, const Operand& b) {
  if (a.spec() == b.spec()) return apply<AddOp>({a, b});
  return map(functors::Add(), a, b);
}

}  // namespace spool
