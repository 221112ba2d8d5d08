#include "spool/runtime/tensor.h"

#include "spool/runtime/memory/poison.h"

namespace spool {

Storage::Storage(const Spec& spec, Stream& stream, const Label& label)
    : stream_((stream.check_thread(label.name.c_str()), stream)),
      block_(stream.arena().allocate(spec, label)),
      bytes_(spec.nbytes()) {
  if constexpr (bounds_are_checked) stream_.enqueue_poison(unpoison, data(), bytes_);
}

Storage::Storage(std::byte* external, size_t bytes, Stream& stream, std::shared_ptr<void> owner)
    : stream_(stream),
      block_(nullptr),
      bytes_(bytes),
      external_(external),
      owner_(std::move(owner)) {
  stream_.arena().count_external(bytes_);
}

Storage::~Storage() {
  stream_.check_freeing_thread();
  if (external_) {
    stream_.arena().count_external_freed(bytes_);
    if (owner_) stream_.destroy_after_work(std::move(owner_));
    return;
  }
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

View View::slice_elements(Range elements) const {
  if (!data_) return {};
  check(0 <= elements.begin && elements.begin <= elements.end && elements.end <= numel(),
        "slice: elements ", elements.begin, " to ", elements.end, " of ", spec_);
  return {data_ + static_cast<size_t>(elements.begin) * size_of(dtype()),
          {Shape{elements.size()}, dtype()}};
}

Tensor Tensor::over(void* data, const Spec& spec, Stream& stream, std::shared_ptr<void> owner,
                    const Label& label) {
  stream.check_thread(label.name.c_str());
  // An address that is not null, for tensors that are present and have no memory.
  alignas(Arena::granule) static std::byte nothing[Arena::granule];
  auto* address = static_cast<std::byte*>(data);
  if (stream.device().type == DeviceType::meta || spec.nbytes() == 0) address = nothing;
  check(address, "tensor over memory: the address of ", label.name, ", ", spec, ", is null");
  const size_t element = size_of(spec.dtype);
  check(reinterpret_cast<uintptr_t>(address) % element == 0, "tensor over memory: the address of ",
        label.name, ", ", spec, ", is not a multiple of ", element,
        " bytes, the size of an element; copy the values to memory that is aligned");
  Tensor t;
  t.storage_ = std::make_shared<Storage>(address, spec.nbytes(), stream, std::move(owner));
  t.view_ = View(address, spec);
  return t;
}

void Tensor::fail_absent() const {
  check(absent_ == "", "the data of parameter ", absent_,
        " is on the host; Parameters::with() has ", "it on the device while it works");
  fail(ErrorKind::invalid, "an absent tensor was used, which has no memory");
}

Tensor Tensor::slice(Range rows) const {
  if (!storage_) fail_absent();
  Tensor t = *this;
  t.view_ = view_.slice(rows);
  return t;
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (!storage_) fail_absent();
  check(shape.numel() == numel(), "reshape: ", spec(), " to ", shape);
  Tensor t = *this;
  t.view_ = View(view_.data(), {shape, dtype()});
  return t;
}

Tensor Tensor::part(size_t begin, const Spec& spec) const {
  if (!storage_) fail_absent();
  check(begin <= nbytes() && spec.nbytes() <= nbytes() - begin && begin % size_of(spec.dtype) == 0,
        "part: ", spec, " from byte ", begin, " of ", this->spec());
  Tensor t = *this;
  t.view_ = View(view_.data() + begin, spec);
  return t;
}

void read_bytes(const Tensor& t, size_t begin, std::span<std::byte> out) {
  Stream& stream = t.stream();
  check(begin <= t.nbytes() && out.size() <= t.nbytes() - begin, "read: ", out.size(),
        " bytes from byte ", begin, " of ", t.spec());
  stream.download(out.data(), t.view().data() + begin, out.size());
}

double item(const Tensor& t) {
  Stream& stream = t.stream();
  check(t.numel() == 1, "item: ", t.spec(), " has ", t.numel(),
        " elements, and item() takes the value of one; use read() for more");
  if (stream.device().type == DeviceType::meta) {
    fail(ErrorKind::device, "item: ", t.spec(), " is on the meta device, which has no values");
  }
  switch (t.dtype()) {
    case DType::f64:
      return read<double>(t).front();
    case DType::f32:
      return read<float>(t).front();
    case DType::bf16:
      return read<bf16>(t).front();
    case DType::f16:
      return read<f16>(t).front();
    default:
      fail(ErrorKind::invalid, "item: ", t.spec(), " is not of a floating type; use read()");
  }
}

namespace {

std::byte* checked_destination(const Tensor& t, size_t begin, size_t bytes) {
  (void)t.stream();  // it is present
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
