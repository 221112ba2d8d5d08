#pragma once

// Shape: the extents of a tensor, at most four.  Spec: a shape and a scalar type.  Every tensor is
// contiguous and row-major, so there are no strides.

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/dtype.h"

namespace spool {

class Shape {
 public:
  static constexpr int max_rank = 4;

  // Throws if there are more than four extents, a negative one, or more than 2^59 elements.
  Shape(std::initializer_list<int64_t> extents);
  Shape() = default;

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[static_cast<size_t>(i < 0 ? i + rank_ : i)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= (*this)[i];
    return n;
  }
  int64_t row() const { return rank_ ? (*this)[-1] : 1; }  // length of the last dimension
  int64_t rows() const {                                   // number of rows of that length
    int64_t n = row() ? 1 : 0;
    for (int i = 0; i + 1 < rank_; ++i) n *= extents_[static_cast<size_t>(i)];
    return n;
  }
  // The shape with one extent replaced.
  Shape with(int i, int64_t extent) const;
  bool operator==(const Shape&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Shape& s);

 private:
  std::array<int64_t, max_rank> extents_{};
  int rank_ = 0;
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Splits [0, extent) into at most n ranges, all but the last of equal length.
std::vector<Range> split(int64_t extent, int64_t n);

struct Spec {
  Shape shape = {};
  DType dtype = DType::f32;

  size_t nbytes() const { return static_cast<size_t>(shape.numel()) * size_of(dtype); }
  bool operator==(const Spec&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Spec& s) {
    return out << name(s.dtype) << ' ' << s.shape;
  }
};

}  // namespace spool
