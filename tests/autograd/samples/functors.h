#pragma once

// Functors of tests, which a CUDA source applies as well.

#include "spool/autograd/ops/map.h"

namespace spool::testing {

// a b + c
struct MulAdd {
  static constexpr const char* name = "mul_add";
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b, T c) const {
    return a * b + c;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<0>, Unread, T b, Unread) const {
    return b;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<1>, T a, Unread, Unread) const {
    return a;
  }
  SPOOL_HOST_DEVICE int derivative(By<2>, Unread, Unread, Unread) const { return 1; }
};

// a sigmoid(b) + scale c d^2
struct FourInputs {
  static constexpr const char* name = "four_inputs";
  double scale = 1;
  std::string attributes() const { return in_words({{"scale", scale}}); }
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b, T c, T d) const {
    return a * math::sigmoid(b) + static_cast<T>(scale) * c * d * d;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<0>, Unread, T b, Unread, Unread) const {
    return math::sigmoid(b);
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<1>, T a, T b, Unread, Unread) const {
    const T s = math::sigmoid(b);
    return a * s * (1 - s);
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<2>, Unread, Unread, Unread, T d) const {
    return static_cast<T>(scale) * d * d;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<3>, Unread, Unread, T c, T d) const {
    return static_cast<T>(scale) * 2 * c * d;
  }
};

}  // namespace spool::testing
