#pragma once

// A list with room for a fixed number of entries, trivially copyable: what a kernel over many
// tensors is made of.

#include <initializer_list>

#include "spool/runtime/check.h"

namespace spool {

template <class T, int most>
class List {
 public:
  static constexpr int capacity = most;

  List() = default;
  List(std::initializer_list<T> all) {
    for (const T& one : all) add(one);
  }

  void add(const T& one) {
    check(!full(), "a list has room for ", most, " entries");
    at_[size_++] = one;
  }

  int size() const { return size_; }
  bool full() const { return size_ == most; }
  const T& operator[](int i) const { return at_[i]; }
  const T* begin() const { return at_; }
  const T* end() const { return at_ + size_; }

 private:
  T at_[most] = {};
  int size_ = 0;
};

}  // namespace spool
