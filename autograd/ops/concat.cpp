#include <numeric>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/dimensions.h"
#include "spool/kernels/copy.h"

namespace spool {
namespace {

constexpr size_t max_operands = 8;

// Where nothing comes before the dimension, an operand's gradient is a part of the result's, and is
// passed on as it is.
struct Concat final : Op {
  int from_end;  // the dimension, counted from the end: a chunk may have fewer dimensions
  std::vector<int64_t> extents;  // of the operands along it; those of a part of the op are shorter
  std::string notation;

  Concat(int rank, int dim, std::vector<int64_t> along)
      : from_end(dim - rank), extents(std::move(along)) {
    const std::span<const int64_t> all(extents);
    const int64_t unit = common_unit(all);
    for (size_t i = 0; i < extents.size(); ++i) {
      if (i > 0) notation += ',';
      notation += term_of_parts(rank, dim, all.subspan(i, 1), unit);
    }
    notation += "->" + term_of_parts(rank, dim, all, unit);
  }

  const char* name() const override { return "concat"; }
  const char* indices() const override { return notation.c_str(); }
  std::string attributes() const override {
    return in_words({{"dimension from the end", from_end}});
  }

  Specs infer(const Specs& in) const override {
    const int dim = in[0].shape.rank() + from_end;
    int64_t extent = 0;
    for (const Spec& x : in) extent += x.shape[dim];
    return {{in[0].shape.with(dim, extent), in[0].dtype}};
  }

  void forward(Forward& f) const override {
    const std::array<View, max_operands> in = f.inputs<max_operands>();
    const View y = f.outputs<1>()[0];
    const Along whole = along(y);
    for_each(whole, [&](int i, int64_t first, int64_t width) {
      const View& x = in[static_cast<size_t>(i)];
      f.launch(StridedCopy{.out = y,
                           .in = x,
                           .rows = whole.rows,
                           .width = width,
                           .out_stride = whole.extent * whole.width,
                           .in_stride = width,
                           .out_first = first});
    });
  }
  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    const View gradient = b.grad_output(0);
    const Along whole = along(gradient);
    for_each(whole, [&](int i, int64_t first, int64_t width) {
      if (!b.needs_grad(i)) return;
      if (whole.rows == 1 && is_aligned(first, gradient.dtype())) {
        return b.pass_part(i, 0, {first, first + width});
      }
      b.launch(StridedCopy{.out = b.grad_input(i),
                           .in = gradient,
                           .rows = whole.rows,
                           .width = width,
                           .out_stride = width,
                           .in_stride = whole.extent * whole.width,
                           .in_first = first});
    });
  }

 private:
  Along along(const View& y) const { return {y.shape(), y.shape().rank() + from_end}; }

  // Calls f(operand, the first of its elements in a row of the result, their number).
  template <class F>
  void for_each(const Along& whole, const F& f) const {
    const int64_t extent = std::accumulate(extents.begin(), extents.end(), int64_t{0});
    int64_t first = 0;
    for (size_t i = 0; i < extents.size(); ++i) {
      const int64_t width = extent ? extents[i] * whole.extent / extent * whole.width : 0;
      f(static_cast<int>(i), first, width);
      first += width;
    }
  }
};

}  // namespace

Var concat(std::span<const Operand> all, int dim) {
  check(!all.empty() && all.size() <= max_operands, "concat: ", all.size(),
        " operands; it takes 1 to ", max_operands, ", and a concat of concats more");
  const Spec& first = all.front().spec();
  const int d = dimension("concat", first, dim);
  std::vector<int64_t> extents;
  for (const Operand& x : all) {
    const Shape& shape = x.shape();
    const bool fits = shape.rank() == first.shape.rank() &&
                      shape.with(d, first.shape[d]) == first.shape && x.spec().dtype == first.dtype;
    check(fits, "concat: ", in_words(all), " along dimension ", d,
          "; all must be of one type, and differ in that dimension alone");
    extents.push_back(shape[d]);
  }
  if (all.size() == 1) return reshape(all.front(), first.shape);
  return apply<Concat>(all, first.shape.rank(), d, std::move(extents));
}

Var concat(std::initializer_list<Operand> all, int dim) {
  return concat(std::span(all.begin(), all.size()), dim);
}

}  // namespace spool
