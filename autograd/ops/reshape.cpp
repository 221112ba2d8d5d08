#include "spool/autograd/ops.h"
#include "spool/kernels/copy.h"

namespace spool {
namespace {

struct Reshape final : Op {
  Shape shape;
  explicit Reshape(const Shape& s) : shape(s) {}

  const char* name() const override { return "reshape"; }
  const char* indices() const override { return "n->n"; }

  // A part of its input does not tell the shape of the output; the tape of a chunk sets it.
  Specs infer(const Specs& in) const override {
    const int64_t n = in[0].shape.numel();
    return {{n == shape.numel() ? shape : Shape{n}, in[0].dtype}};
  }
  Tensor view(const Tensor& x, const Spec& y) const override { return x.reshape(y.shape); }

  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    if (x.data() == y.data()) return;
    f.launch(StridedCopy{.out = y, .in = x, .rows = 1, .width = x.numel()});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override { b.pass(0); }
};

}  // namespace

Var reshape(const Operand& x, const Shape& shape) {
  const Spec& from = x.spec();
  check(from.shape.numel() == shape.numel(), "reshape: ", from, " has ", from.shape.numel(),
        " elements, and ", shape, " has ", shape.numel(), "; they must have as many");
  return apply<Reshape>({x}, shape);
}

}  // namespace spool
