#pragma once

// A short list without an allocation: the inputs and outputs of an op, and what goes with them.  A
// tape makes several for every node, so what is not in the list is not constructed.

#include <initializer_list>
#include <memory>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

template <class T, size_t Capacity = 8>
class Few {
 public:
  Few() {}
  Few(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  Few(const Few& other) : size_(other.size_) {
    std::uninitialized_copy_n(other.items_, size_, items_);
  }
  Few(Few&& other) noexcept : size_(other.size_) {
    std::uninitialized_move_n(other.items_, size_, items_);
  }
  Few& operator=(Few other) noexcept {
    std::destroy_n(items_, size_);
    size_ = other.size_;
    std::uninitialized_move_n(other.items_, size_, items_);
    return *this;
  }
  ~Few() { std::destroy_n(items_, size_); }

  void push_back(T item) {
    check(size_ < Capacity, "an op can have at most ", Capacity, " inputs and as many outputs");
    std::construct_at(items_ + size_, std::move(item));
    ++size_;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& front() { return items_[0]; }
  const T& front() const { return items_[0]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }

 private:
  union {
    T items_[Capacity];
  };
  size_t size_ = 0;
};

}  // namespace spool
