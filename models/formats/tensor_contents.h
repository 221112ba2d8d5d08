#pragma once

// What a tensor of a file is written from and read into: a tensor of a device, or one whose memory
// is in several places, and is read and written in ranges of bytes.

#include <cstddef>
#include <functional>
#include <span>

#include "spool/runtime/tensor.h"

namespace spool {

class TensorContents {
 public:
  // At most this many bytes at a time.
  static constexpr size_t max_range = size_t{4} << 20;
  using Read = std::function<void(size_t begin, std::span<std::byte> out)>;
  using Write = std::function<void(size_t begin, std::span<const std::byte> in)>;

  TensorContents() = default;
  TensorContents(Tensor tensor) : tensor_(std::move(tensor)), spec_(tensor_.spec()) {}
  // Begins and ends of ranges are those of elements.
  TensorContents(const Spec& spec, Read read, Write write)
      : spec_(spec), read_(std::move(read)), write_(std::move(write)) {}

  explicit operator bool() const { return tensor_ || read_; }
  // Of a device; absent if the memory is in several places.
  const Tensor& tensor() const { return tensor_; }
  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  size_t nbytes() const { return *this ? spec_.nbytes() : 0; }
  int64_t numel() const { return spec_.shape.numel(); }

  // Rows of the first dimension.
  TensorContents slice(Range rows) const;

  // Bytes [begin, begin + out.size()).
  void read(size_t begin, std::span<std::byte> out) const;
  // As many bytes, all of which fill() provides.
  void write(size_t begin, size_t bytes, const Stream::Fill& fill) const;

 private:
  Tensor tensor_;
  Spec spec_ = {};
  Read read_ = {};
  Write write_ = {};
};

}  // namespace spool
