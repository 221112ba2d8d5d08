#include "spool/kernels/copy.h"

#include <algorithm>
#include <utility>

#include "spool/kernels/arguments.h"
#include "spool/kernels/copy_loops.h"

namespace spool {
namespace {

// Checks that `out` can take elements of `in`, any number of them.
void check_elements(const Arguments& all, const char* kernel, const Grad& out, const View& in) {
  all.present("in", in, floating | DType::i32);
  all.present("out", out.view, gradient_of(in.dtype()));
  if (in.dtype() == DType::i32) {
    all.present("out", out.view, DType::i32);
    check(!out.accumulate, kernel, ": i32 is only copied, not added to what is there");
  }
  all.apart("out", out.view, {{"in", in}});
}

// Checks that rows of `width` elements lie inside of a tensor.
void check_rows(const StridedCopy& k, const char* what, const View& tensor, int64_t first,
                int64_t stride) {
  const int64_t end = first + (k.rows - 1) * stride + k.width;
  check(first >= 0 && stride >= 0 && end <= tensor.numel(), k.name, ": ", k.rows, " rows of ",
        k.width, " elements, the first at ", first, " and each ", stride,
        " after the one before, are not inside of ", what, ' ', tensor.spec());
}

// Checks that the elements of a block lie inside of a tensor.
void check_block(const CopyBlocks::Block& b, const char* what, const View& tensor, int64_t first,
                 int64_t step, int64_t stride) {
  const int64_t end = first + (b.times - 1) * step + (b.rows - 1) * stride + b.width;
  check(first >= 0 && step >= 0 && stride >= 0 && end <= tensor.numel(), CopyBlocks::name, ": ",
        b.times, " times ", b.rows, " rows of ", b.width, " elements, the first at ", first,
        ", are not inside of ", what, ' ', tensor.spec());
}

double moved_bytes(double elements, const Grad& out, const View& in) {
  const size_t written = size_of(out.view.dtype()) * (out.accumulate ? 2 : 1);
  return elements * static_cast<double>(size_of(in.dtype()) + written);
}

}  // namespace

void StridedCopy::check_arguments() const {
  check_elements(Arguments(name), name, out, in);
  check(rows >= 0 && width >= 0, name, ": ", rows, " rows of ", width, " elements");
  if (rows == 0 || width == 0) return;
  check_rows(*this, "in", in, in_first, in_stride);
  check_rows(*this, "out", out.view, out_first, out_stride);
  check(rows == 1 || out_stride >= width, name, ": rows of ", width,
        " elements overlap if each is ", out_stride, " after the one before");
}

Cost StridedCopy::cost() const {
  const double elements = static_cast<double>(rows) * static_cast<double>(width);
  return {out.accumulate ? elements : 0, moved_bytes(elements, out, in), accumulator(in.dtype())};
}

void CopyBlocks::check_arguments() const {
  check_elements(Arguments(name), name, out, in);
  int64_t elements = 0;
  for (const Block& b : blocks) {
    check(b.times >= 0 && b.rows >= 0 && b.width >= 0, name, ": ", b.times, " times ", b.rows,
          " rows of ", b.width, " elements");
    if (b.elements() == 0) continue;
    check_block(b, "in", in, b.in_first, b.in_step, b.in_stride);
    check_block(b, "out", out.view, b.out_first, b.out_step, b.out_stride);
    elements += b.elements();
  }
  check(elements <= out.view.numel(), name, ": blocks of ", elements, " elements overlap in out, ",
        out.view.spec());
}

Cost CopyBlocks::cost() const {
  double elements = 0;
  for (const Block& b : blocks) elements += static_cast<double>(b.elements());
  return {out.accumulate ? elements : 0, moved_bytes(elements, out, in), accumulator(in.dtype())};
}

void Permute::check_arguments() const {
  check_elements(Arguments(name), name, out, in);
  const int rank = in.shape().rank();
  check(out.view.shape().rank() == rank, name, ": out ", out.view.spec(), " and in ", in.spec(),
        " must have the same number of dimensions");
  unsigned seen = 0;
  for (int d = 0; d < rank; ++d) {
    const int from = order[static_cast<size_t>(d)];
    const bool fresh = from >= 0 && from < rank && (seen >> from & 1) == 0;
    check(fresh, name, ": the order of the ", rank, " dimensions has ", from, " at ", d,
          "; each must stand there once");
    seen |= 1u << from;
    check(out.view.shape()[d] == in.shape()[from], name, ": dimension ", d, " of out ",
          out.view.spec(), " must be as long as dimension ", from, " of in ", in.spec());
  }
}

Cost Permute::cost() const {
  const auto elements = static_cast<double>(in.numel());
  return {out.accumulate ? elements : 0, moved_bytes(elements, out, in), accumulator(in.dtype())};
}

CopyLoops::CopyLoops(const StridedCopy& k) {
  loops[3] = {.extent = k.rows, .out = k.out_stride, .in = k.in_stride};
  push({.extent = k.width, .out = 1, .in = 1});
}

CopyLoops::CopyLoops(const CopyBlocks::Block& b) {
  loops[3] = {.extent = b.times, .out = b.out_step, .in = b.in_step};
  push({.extent = b.rows, .out = b.out_stride, .in = b.in_stride});
  push({.extent = b.width, .out = 1, .in = 1});
}

CopyLoops::CopyLoops(const Permute& k) {
  const Shape& shape = k.in.shape();
  std::array<int64_t, Shape::max_rank> strides{};
  for (int64_t stride = 1, d = shape.rank() - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = std::exchange(stride, stride * shape[static_cast<int>(d)]);
  }
  int64_t out = shape.numel();
  loops[3] = {.extent = std::min<int64_t>(out, 1), .out = out, .in = out};
  for (int d = 0; d < shape.rank() && out > 0; ++d) {
    const int from = k.order[static_cast<size_t>(d)];
    if (shape[from] == 1) continue;
    out /= shape[from];
    push({.extent = shape[from], .out = out, .in = strides[static_cast<size_t>(from)]});
  }
}

void CopyLoops::push(Loop inner) {
  Loop& outer = loops[3];
  const bool together =
      outer.out == inner.extent * inner.out && outer.in == inner.extent * inner.in;
  if (outer.extent == 1 || together) {
    inner.extent *= outer.extent;
  } else {
    for (size_t i = 0; i + 1 < loops.size(); ++i) loops[i] = loops[i + 1];
  }
  loops[3] = inner;
}

size_t CopyLoops::neighbours() const {
  size_t i = 2;
  while (i > 0 && loops[i].in != 1) --i;
  return i;
}

}  // namespace spool
