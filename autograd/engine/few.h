#pragma once

// A short list without an allocation, such as an op's inputs or outputs.  A tape makes several for
// each node, so unused capacity is not constructed.  Positions are whole numbers of any type, as
// ops count their inputs in int.

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

template <class T, size_t Capacity = 8>
class Few {
 public:
  Few() = default;
  Few(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  Few(const Few& other) : size_(other.size_) {
    std::uninitialized_copy_n(other.items(), size_, items());
  }
  Few(Few&& other) noexcept : size_(other.size_) {
    std::uninitialized_move_n(other.items(), size_, items());
  }
  Few& operator=(Few other) noexcept {
    std::destroy_n(items(), size_);
    size_ = other.size_;
    std::uninitialized_move_n(other.items(), size_, items());
    return *this;
  }
  ~Few() { std::destroy_n(items(), size_); }

  void push_back(T item) {
    check(size_ < Capacity, "an op can have at most ", Capacity, " inputs and ", Capacity,
          " outputs");
    std::construct_at(items() + size_, std::move(item));
    ++size_;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool has(std::integral auto i) const { return i >= 0 && static_cast<size_t>(i) < size_; }
  T& operator[](std::integral auto i) { return items()[i]; }
  const T& operator[](std::integral auto i) const { return items()[i]; }
  T& front() { return items()[0]; }
  const T& front() const { return items()[0]; }
  T* begin() { return items(); }
  T* end() { return items() + size_; }
  const T* begin() const { return items(); }
  const T* end() const { return items() + size_; }

 private:
  T* items() { return reinterpret_cast<T*>(memory_); }
  const T* items() const { return reinterpret_cast<const T*>(memory_); }

  alignas(T) std::byte memory_[sizeof(T) * Capacity];
  size_t size_ = 0;
};

}  // namespace spool
