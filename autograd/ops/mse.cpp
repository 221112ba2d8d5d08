#include "spool/autograd/ops.h"
#include "spool/autograd/ops/rows.h"
#include "spool/kernels/reduce.h"
#include "spool/kernels/squared_error.h"

namespace spool {
namespace {

// A mean over rows divides by their number, which is fixed when the op is applied, since a chunk
// has only some of them.  x and y (C) are one row, so their mean is that over all elements.
struct Mse final : Op {
  Reduction reduction;
  int64_t rows;  // that a mean divides by
  Mse(Reduction r, const Shape& x)
      : reduction(r), rows(r == Reduction::mean ? std::max<int64_t>(x.rows(), 1) : 1) {}

  const char* name() const override { return "mse"; }
  const char* indices() const override {
    return reduction == Reduction::none ? "nC,nC->n" : "nC,nC->";
  }
  std::string attributes() const override {
    return in_words({{"reduction", spool::name(reduction)}, {"divided by", rows}});
  }

  Specs infer(const Specs& in) const override {
    const Spec& x = in[0];
    check(x == in[1], name(), ": x ", x, " and y ", in[1], " must have the same shape and type");
    check(x.shape.row() > 0, name(), ": a row of ", x,
          " has no elements, and so no mean; it needs one or more");
    const DType type = accumulator(x.dtype);
    return {{reduction == Reduction::none ? without_rows(x.shape) : Shape{1}, type}};
  }

  void forward(Forward& f) const override {
    auto [x, y] = f.inputs<2>();
    auto [loss] = f.outputs<1>();
    if (reduction == Reduction::none) {
      return f.launch(SquaredErrorForward{.losses = loss, .x = x, .y = y});
    }
    const Tensor losses = f.scratch({Shape{x.shape().rows()}, loss.dtype()});
    f.launch(SquaredErrorForward{.losses = losses, .x = x, .y = y});
    const View scale = given_scale(f);
    f.launch(SumAll{.out = loss, .x = losses, .factor = factor(scale), .by = scale});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1)}; }

  void backward(Backward& b) const override {
    auto [x, y] = b.saved<2>();
    auto [dloss] = b.grad_outputs<1>();
    auto [dx, dy] = b.grad_inputs<2>();
    const View scale = given_scale(b);
    b.launch(SquaredErrorBackward{.dx = dx,
                                  .dy = dy,
                                  .x = x,
                                  .y = y,
                                  .upstream = dloss,
                                  .scale = scale,
                                  .factor = factor(scale)});
  }

 private:
  template <class Pass>
  View given_scale(Pass& pass) const {
    return reduction == Reduction::mean ? pass.loss_scale() : View();
  }
  double factor(const View& scale) const { return scale ? 1 : 1 / static_cast<double>(rows); }
};

}  // namespace

Var mse(const Operand& x, const Operand& y, Reduction reduction) {
  check(reduction != Reduction::mean || x.shape().row() == 0 || x.shape().numel() > 0,
        "mse: there is no mean over no elements, of ", x.spec());
  return apply<Mse>({x, y}, reduction, x.shape());
}

}  // namespace spool
