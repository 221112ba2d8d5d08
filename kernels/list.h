#pragma once

// A trivially copyable list with a fixed capacity, for kernels over many tensors.

#include <cstddef>
#include <initializer_list>

#include "spool/runtime/check.h"

namespace spool {

template <class T, int max_size>
class List {
 public:
  static constexpr int capacity = max_size;

  List() = default;
  List(std::initializer_list<T> all) {
    for (const T& one : all) add(one);
  }

  void add(const T& one) {
    check(!full(), "a list of at most ", max_size, " entries is full");
    at_[size_++] = one;
  }

  int size() const { return size_; }
  bool full() const { return size_ == max_size; }
  const T& operator[](size_t i) const { return at_[i]; }
  const T* begin() const { return at_; }
  const T* end() const { return at_ + size_; }

 private:
  T at_[static_cast<size_t>(max_size)] = {};
  int size_ = 0;
};

}  // namespace spool
