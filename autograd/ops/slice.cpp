#include <array>

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/dimensions.h"
#include "spool/kernels/copy.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Where nothing comes before the dimension, the slice is contiguous, and a view of x; else its rows
// are copied.
struct Slice final : Op {
  int from_end;  // the dimension, counted from the end: a chunk may have fewer dimensions
  Range range;
  int64_t extent;  // of the dimension; of a part of the op it is shorter, and so is the slice
  std::string notation;

  Slice(int rank, int dim, Range r, int64_t whole)
      : from_end(dim - rank), range(r), extent(whole), notation(notation_of(rank, dim)) {}

  const char* name() const override { return "slice"; }
  const char* indices() const override { return notation.c_str(); }
  std::string attributes() const override {
    return in_words(
        {{"dimension from the end", from_end}, {"from", range.begin}, {"to", range.end}});
  }
  Specs infer(const Specs& in) const override {
    return {{in[0].shape.with(dim(in[0].shape), range_in(in[0].shape).size()), in[0].dtype}};
  }
  Tensor view(const Tensor& x, const Spec& y) const override {
    const Along all = along(x.shape());
    const Range elements = elements_in(x.shape());
    if (all.rows != 1 || !is_aligned(elements.begin, x.dtype())) return {};
    return x.reshape({x.numel()}).slice(elements).reshape(y.shape);
  }

  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    const Along all = along(x.shape());
    const Range elements = elements_in(x.shape());
    const auto begin = static_cast<size_t>(elements.begin) * size_of(x.dtype());
    if (all.rows == 1 && y.data() == x.data() + begin) return;
    f.launch(StridedCopy{.out = y,
                         .in = x,
                         .rows = all.rows,
                         .width = elements.size(),
                         .out_stride = elements.size(),
                         .in_stride = all.extent * all.width,
                         .in_first = elements.begin});
  }
  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    const auto [dy] = b.grad_outputs<1>();
    const Grad dx = b.grad_input(0);
    const Along all = along(dx.view.shape());
    const Range elements = elements_in(dx.view.shape());
    if (!dx.accumulate) clear_others(b, dx.view, all.rows, elements);
    b.launch(StridedCopy{.out = dx,
                         .in = dy,
                         .rows = all.rows,
                         .width = elements.size(),
                         .out_stride = all.extent * all.width,
                         .in_stride = elements.size(),
                         .out_first = elements.begin});
  }

 private:
  std::string notation_of(int rank, int dim) const {
    const std::array lengths{range.begin, range.size(), extent - range.end};
    const int64_t unit = common_unit(lengths);
    return term_of_parts(rank, dim, lengths, unit) + "->" +
           term_of_parts(rank, dim, std::span(lengths).subspan(1, 1), unit);
  }
  Range range_in(const Shape& x) const {
    const int64_t own = x[dim(x)];
    if (own == extent) return range;
    return {range.begin * own / extent, range.end * own / extent};
  }
  // Of a row of `along()`.
  Range elements_in(const Shape& x) const {
    const Range own = range_in(x);
    const int64_t width = along(x).width;
    return {own.begin * width, own.end * width};
  }
  int dim(const Shape& x) const { return x.rank() + from_end; }
  Along along(const Shape& x) const { return {x, dim(x)}; }

  // The gradient of what is not in the slice is zero.
  static void clear_others(Backward& b, const View& dx, int64_t rows, Range elements) {
    if (rows > 1) return b.launch(Fill{.out = dx});
    const View flat(dx.data(), {Shape{dx.numel()}, dx.dtype()});
    if (elements.begin > 0) b.launch(Fill{.out = flat.slice({0, elements.begin})});
    if (elements.end < dx.numel()) b.launch(Fill{.out = flat.slice({elements.end, dx.numel()})});
  }
};

}  // namespace

Var slice(const Operand& x, int dim, Range range) {
  const Spec& from = x.spec();
  const int d = dimension("slice", from, dim);
  const int64_t extent = from.shape[d];
  check(0 <= range.begin && range.begin <= range.end && range.end <= extent, "slice: elements ",
        range.begin, " to ", range.end, " of dimension ", d, " of ", from,
        "; a slice begins at 0 or later, and ends at ", extent, " or before");
  if (range.size() == extent) return reshape(x, from.shape);
  return apply<Slice>({x}, from.shape.rank(), d, range, extent);
}

}  // namespace spool
