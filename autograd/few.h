#pragma once

// A short list without an allocation: the inputs and outputs of an op, and what goes with them.

#include <array>
#include <initializer_list>
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

  void push_back(T item) {
    check(size_ < Capacity, "an op can have at most ", Capacity, " inputs and as many outputs");
    items_[size_++] = std::move(item);
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& front() { return items_[0]; }
  const T& front() const { return items_[0]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }

 private:
  std::array<T, Capacity> items_{};
  size_t size_ = 0;
};

}  // namespace spool
