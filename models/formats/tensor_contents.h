#pragma once

// The contents of a tensor that a file is read into or written from: a tensor of a device, or one
// whose memory is in several places and is read and written in ranges of bytes.

#include <cstddef>
#include <functional>
#include <span>

#include "spool/runtime/tensor.h"

namespace spool {

class TensorContents {
 public:
  // Maximum number of bytes read or written at a time.
  static constexpr size_t max_range = size_t{4} << 20;
  using Read = std::function<void(size_t begin, std::span<std::byte> out)>;
  using Write = std::function<void(size_t begin, std::span<const std::byte> in)>;

  TensorContents() = default;
  TensorContents(Tensor tensor) : tensor_(std::move(tensor)), spec_(tensor_.spec()) {}
  // Ranges begin and end between elements.
  TensorContents(const Spec& spec, Read read, Write write)
      : spec_(spec), read_(std::move(read)), write_(std::move(write)) {}

  explicit operator bool() const { return tensor_ || read_; }
  // The device's tensor; absent if the memory is in several places.
  const Tensor& tensor() const { return tensor_; }
  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  size_t nbytes() const { return *this ? spec_.nbytes() : 0; }
  int64_t numel() const { return spec_.shape.numel(); }

  // A range of rows of the first dimension.
  TensorContents slice(Range rows) const;

  // Reads bytes [begin, begin + out.size()).
  void read(size_t begin, std::span<std::byte> out) const;
  // Writes `bytes` bytes, all of which fill() provides.
  void write(size_t begin, size_t bytes, const Stream::Fill& fill) const;

 private:
  Tensor tensor_;
  Spec spec_ = {};
  Read read_ = {};
  Write write_ = {};
};

}  // namespace spool
