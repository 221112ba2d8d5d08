#include "spool/runtime/tensor.h"

namespace spool {

View View::slice(Range rows) const {
  const int64_t extent = shape().rank() ? shape()[0] : 0;
  check(0 <= rows.begin && rows.begin <= rows.end && rows.end <= extent, "slice: rows ", rows.begin,
        " to ", rows.end, " of ", spec_);
  const size_t row_bytes = extent ? spec_.nbytes() / static_cast<size_t>(extent) : 0;
  return {data_ + static_cast<size_t>(rows.begin) * row_bytes,
          {shape().with(0, rows.size()), dtype()}};
}

Tensor Tensor::slice(Range rows) const {
  Tensor t = *this;
  t.view_ = view_.slice(rows);
  return t;
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "reshape: ", spec(), " to ", shape);
  Tensor t = *this;
  t.view_ = View(view_.data(), {shape, dtype()});
  return t;
}

void read_bytes(const Tensor& t, size_t begin, std::span<std::byte> out) {
  check(begin <= t.nbytes() && out.size() <= t.nbytes() - begin, "read: ", out.size(),
        " bytes from byte ", begin, " of ", t.spec());
  t.stream().download(out.data(), t.view().data() + begin, out.size());
}

void write_bytes(const Tensor& t, size_t begin, std::span<const std::byte> in) {
  check(begin <= t.nbytes() && in.size() <= t.nbytes() - begin, "write: ", in.size(),
        " bytes at byte ", begin, " of ", t.spec());
  t.stream().upload(t.view().data() + begin, in.data(), in.size());
}

}  // namespace spool
