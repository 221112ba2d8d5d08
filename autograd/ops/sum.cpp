#include "spool/autograd/ops.h"
#include "spool/autograd/ops/rows.h"
#include "spool/kernels/reduce.h"
#include "spool/kernels/sum_rows.h"

namespace spool {
namespace {

// The sum times a factor.  A mean fixes the factor when it is applied, so chunks, which have some
// of the elements, add up to the mean of all.
struct Sum final : Op {
  const char* word;
  Over over;
  double factor;
  Sum(const char* w, Over o, double f) : word(w), over(o), factor(f) {}

  const char* name() const override { return word; }
  const char* indices() const override { return over == Over::all ? "n->" : "nc->n"; }
  std::string attributes() const override {
    return in_words({{"over", over == Over::all ? "all" : "last"}, {"factor", factor}});
  }

  Specs infer(const Specs& in) const override {
    const auto& [shape, type] = in[0];
    if (over == Over::all) return {{Shape{1}, accumulator(type)}};
    return {{without_rows(shape), type}};
  }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    if (over == Over::all) return f.launch(SumAll{.out = y, .x = x, .factor = factor});
    f.launch(SumRows{.y = y, .x = x, .C = x.shape().row(), .factor = factor});
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    b.launch(Spread{.dx = b.grad_input(0), .dy = dy, .factor = factor});
  }
};

}  // namespace

Var sum(const Operand& x, Over over) { return apply<Sum>({x}, "sum", over, 1.0); }

Var mean(const Operand& x, Over over) {
  const int64_t count = over == Over::all ? x.shape().numel() : x.shape().row();
  check(count > 0, "mean: there is no mean over no elements, of ", x.spec(),
        "; it needs one or more");
  return apply<Sum>({x}, "mean", over, 1 / static_cast<double>(count));
}

}  // namespace spool
