#include "spool/runtime/tensor.h"

#include "spool/runtime/memory/poison.h"

namespace spool {

Storage::Storage(const Spec& spec, Stream& stream, const Label& label)
    : stream_((stream.check_thread(label.name.c_str()), stream)),
      block_(stream.arena().allocate(spec, label)),
      bytes_(spec.nbytes()) {
  if constexpr (bounds_are_checked) stream_.enqueue_poison(unpoison, data(), bytes_);
}

Storage::~Storage() {
  stream_.check_freeing_thread();
  if constexpr (bounds_are_checked) stream_.enqueue_poison(poison, data(), bytes_);
  stream_.arena().free(block_);
}

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

namespace {

std::byte* checked_destination(const Tensor& t, size_t begin, size_t bytes) {
  check(begin <= t.nbytes() && bytes <= t.nbytes() - begin, "write: ", bytes, " bytes at byte ",
        begin, " of ", t.spec());
  return t.view().data() + begin;
}

}  // namespace

void write_bytes(const Tensor& t, size_t begin, std::span<const std::byte> in) {
  t.stream().upload(checked_destination(t, begin, in.size()), in.data(), in.size());
}

void write_bytes(const Tensor& t, size_t begin, size_t bytes, const Stream::Fill& fill) {
  t.stream().upload(checked_destination(t, begin, bytes), bytes, fill);
}

}  // namespace spool
