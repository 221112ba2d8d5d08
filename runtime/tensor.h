// Public: one of the headers of docs/public-headers.md.
#pragma once

// A Tensor is a contiguous range of memory with a shape and a type.  It shares ownership of the
// memory, which is a stream's, or was allocated outside Spool (Tensor::over).  A View is the same
// without ownership, trivially copyable; kernels take views.

#include <memory>
#include <span>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

// An allocation on a device, freed with its last tensor; or external memory, whose owner is
// destroyed after the stream's work.  It must not outlive its stream, and is freed on the thread
// that calls the stream.
class Storage {
 public:
  Storage(const Spec& spec, Stream& stream, const Label& label);
  Storage(std::byte* external, size_t bytes, Stream& stream, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Stream& stream() const { return stream_; }
  std::byte* data() const { return external_ ? external_ : stream_.arena().address(block_); }
  bool is_external() const { return external_ != nullptr; }

 private:
  Stream& stream_;
  Arena::Block* block_;  // null for external memory
  size_t bytes_;
  std::byte* external_ = nullptr;
  std::shared_ptr<void> owner_ = nullptr;
};

// A range of memory that a tensor keeps alive.  A default-constructed view is absent, and false.
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

  // Rows of the first dimension, in place.
  View slice(Range rows) const;
  // Elements in the order of memory, as one row, in place; absent if the view is.
  View slice_elements(Range elements) const;

 private:
  std::byte* data_ = nullptr;
  Spec spec_ = {};
};

// Cheap to copy; copies share memory.  A default-constructed tensor is absent, and false; what
// needs its memory or its stream throws.
class Tensor {
 public:
  Tensor() = default;
  // Absent, because the parameter of this name is in host memory: errors say so.
  static Tensor on_host(Name parameter) {
    Tensor t;
    t.absent_ = parameter;
    return t;
  }
  Tensor(const Spec& spec, Stream& stream, const Label& label = {})
      : storage_(std::make_shared<Storage>(spec, stream, label)), view_(storage_->data(), spec) {}

  // A tensor over memory allocated outside Spool: contiguous, on the stream's device, at an address
  // that is a multiple of an element's size.  On meta the address is not used and may be null.  The
  // bytes are outside the budget; MemoryStats::external counts them.
  //
  // `owner` is destroyed after the last tensor and the work that was enqueued before (see
  // Stream::destroy_after_work); without one the memory must stay until that work is done.  No op
  // writes over the memory; write(), an optimizer and backward do if it is given to them as the
  // destination, or as a parameter or its gradient.
  static Tensor over(void* data, const Spec& spec, Stream& stream,
                     std::shared_ptr<void> owner = nullptr, const Label& label = {});

  explicit operator bool() const { return storage_ != nullptr; }
  operator View() const { return view_; }
  const View& view() const { return view_; }
  const Spec& spec() const { return view_.spec(); }
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  size_t nbytes() const { return view_.nbytes(); }
  int64_t numel() const { return view_.numel(); }
  Stream& stream() const {
    if (!storage_) [[unlikely]]
      fail_absent();
    return storage_->stream();
  }

  // Whether nothing else refers to the memory, so that it may be written over.
  bool sole_owner() const { return storage_.use_count() == 1 && !is_external(); }
  bool is_external() const { return storage_ && storage_->is_external(); }
  bool same_memory(const Tensor& t) const {
    return storage_ == t.storage_ && view_.data() == t.view_.data();
  }

  // Identifies the memory without keeping it alive: tensors with equal identities share memory.
  std::weak_ptr<const void> memory_identity() const { return storage_; }

  // Rows of the first dimension, in place.
  Tensor slice(Range rows) const;
  // The same elements with another shape of equal size.
  Tensor reshape(const Shape&) const;
  // Bytes from this one on, in place, as a tensor of that spec.
  Tensor part(size_t begin, const Spec&) const;

 private:
  [[noreturn]] void fail_absent() const;

  std::shared_ptr<Storage> storage_;
  View view_;
  Name absent_ = "";  // the parameter whose data it would be
};

// Copies bytes [begin_byte, begin_byte + out.size()) to the host, after all work enqueued before.
void read_bytes(const Tensor& t, size_t begin_byte, std::span<std::byte> out);
void write_bytes(const Tensor& t, size_t begin_byte, std::span<const std::byte> in);
// Writes `bytes` bytes, all of which fill() provides.
void write_bytes(const Tensor& t, size_t begin_byte, size_t bytes, const Stream::Fill& fill);

template <class T>
void check_type(const Tensor& t) {
  check(t.dtype() == dtype_of<T>(), "a tensor of ", name(t.dtype()), " was read or written as ",
        name(dtype_of<T>()));
}

// A tensor's values on the host; throws on meta, which has none.
template <class T>
std::vector<T> read(const Tensor& t) {
  check_type<T>(t);
  std::vector<T> out(static_cast<size_t>(t.numel()));
  read_bytes(t, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

// The value of a tensor of one element, of a floating type, after all work enqueued before.  Throws
// for other tensors, and on meta, which has no values.
double item(const Tensor& t);

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
