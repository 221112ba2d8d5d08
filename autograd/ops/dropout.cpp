#include "spool/kernels/dropout.h"

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct DropoutOp final : Op {
  float p;
  explicit DropoutOp(float probability) : p(probability) {}

  const char* name() const override { return "dropout"; }
  std::string attributes() const override { return in_words({{"p", p}}); }
  const char* indices() const override { return "nC->nC"; }  // chunks begin with a row
  Specs infer(const Specs& in) const override { return {in[0]}; }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(kernel(y, x, f.random(), f.node(), f.first_element(x)));
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    b.launch(kernel(b.grad_input_over(0, 0), dy, b.random(), b.node(), b.first_element(dy)));
  }

 private:
  Dropout kernel(const Grad& y, const View& x, const View& random, NodeId node,
                 int64_t first) const {
    constexpr int64_t max_elements = int64_t{1} << 34;  // four draws for each value of the counter
    check(first + x.numel() <= max_elements, name(), ": ", x.spec(), " from element ", first,
          " on is more than the ", max_elements,
          " elements that its random numbers can tell apart; cut the batch into micro-batches");
    return {.y = y,
            .x = x,
            .random = random,
            .node = static_cast<uint32_t>(node),
            .first = first,
            .p = p};
  }
};

}  // namespace

Var dropout(const Var& x, float p) {
  check(p >= 0 && p < 1, "dropout: a probability of ", p, " is not in [0, 1)");
  if (p == 0 || !x.tape().options().training) return x;
  return apply<DropoutOp>(x.tape(), {x}, p);
}

}  // namespace spool
