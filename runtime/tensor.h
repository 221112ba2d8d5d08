#pragma once

// A Tensor owns a contiguous window on memory of a stream; a View is the same window without
// ownership, trivially copyable, and what kernels are made of.

#include <memory>
#include <span>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

// Memory on a device, freed when its last tensor goes.  It must not outlive its stream.
class Storage {
 public:
  Storage(const Spec& spec, Stream& stream, const Label& label);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Stream& stream() const { return stream_; }
  std::byte* data() const { return stream_.arena().address(block_); }

 private:
  Stream& stream_;
  Arena::Block* block_;
  size_t bytes_;
};

// A window on memory that somebody else keeps alive.  A default-constructed view is absent, and
// false.
class View {
 public:
  View() = default;
  View(std::byte* data, const Spec& spec) : data_(data), spec_(spec) {}

  explicit operator bool() const { return data_ != nullptr; }
  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  size_t nbytes() const { return data_ ? spec_.nbytes() : 0; }
  int64_t numel() const { return spec_.shape.numel(); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::byte* data() const { return data_; }

  // Some rows of the first dimension, in place.
  View slice(Range rows) const;

 private:
  std::byte* data_ = nullptr;
  Spec spec_ = {};
};

// Cheap to copy; copies share memory.  A default-constructed tensor is absent, and false.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Spec& spec, Stream& stream, const Label& label = {})
      : storage_(std::make_shared<Storage>(spec, stream, label)), view_(storage_->data(), spec) {}

  explicit operator bool() const { return storage_ != nullptr; }
  operator View() const { return view_; }
  const View& view() const { return view_; }
  const Spec& spec() const { return view_.spec(); }
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  size_t nbytes() const { return view_.nbytes(); }
  int64_t numel() const { return view_.numel(); }
  Stream& stream() const { return storage_->stream(); }

  bool sole_owner() const { return storage_.use_count() == 1; }
  bool same_memory(const Tensor& t) const {
    return storage_ == t.storage_ && view_.data() == t.view_.data();
  }

  // Of its memory, which it does not keep alive; for telling whether another tensor shares it.
  std::weak_ptr<const void> memory_identity() const { return storage_; }

  // Some rows of the first dimension, in place.
  Tensor slice(Range rows) const;
  // The same elements under another shape of as many.
  Tensor reshape(const Shape&) const;

 private:
  std::shared_ptr<Storage> storage_;
  View view_;
};

// Elements [begin, begin + out.size()) of a tensor, on the host, after all work enqueued before.
void read_bytes(const Tensor& t, size_t begin_byte, std::span<std::byte> out);
void write_bytes(const Tensor& t, size_t begin_byte, std::span<const std::byte> in);
// So many bytes, which fill() writes, all of them.
void write_bytes(const Tensor& t, size_t begin_byte, size_t bytes, const Stream::Fill& fill);

template <class T>
void check_type(const Tensor& t) {
  check(t.dtype() == dtype_of<T>(), "a tensor of ", name(t.dtype()), " was read or written as ",
        name(dtype_of<T>()));
}

// The host sees data only through read(): an error on meta.
template <class T>
std::vector<T> read(const Tensor& t) {
  check_type<T>(t);
  std::vector<T> out(static_cast<size_t>(t.numel()));
  read_bytes(t, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

template <class T>
void write(const Tensor& t, std::span<const T> in) {
  check_type<T>(t);
  check(in.size() == static_cast<size_t>(t.numel()), "write: ", in.size(), " values for ",
        t.spec());
  write_bytes(t, 0, std::as_bytes(in));
}

template <class T>
Tensor make_tensor(const Shape& shape, std::span<const T> values, Stream& stream,
                   const Label& label = {}) {
  Tensor t({shape, dtype_of<T>()}, stream, label);
  write<T>(t, values);
  return t;
}

}  // namespace spool
