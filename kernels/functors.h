#pragma once

// The functors of Spool's own element-wise ops; map.h says what each member means.  Their kernels
// are compiled once, in kernels/cpu/functors.cpp and kernels/cuda/functors.cu, which list them.

#include "spool/kernels/map.h"

namespace spool::functors {

struct Add {
  using OfSpool = void;
  static constexpr const char* name = "add";
  static constexpr double flops = 1;
  static constexpr uint32_t passes = 0b11;
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b) const {
    return a + b;
  }
  SPOOL_HOST_DEVICE int derivative(By<0>, Unread, Unread) const { return 1; }
  SPOOL_HOST_DEVICE int derivative(By<1>, Unread, Unread) const { return 1; }
};

struct Sub {
  using OfSpool = void;
  static constexpr const char* name = "sub";
  static constexpr double flops = 1;
  static constexpr uint32_t passes = 0b01;
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b) const {
    return a - b;
  }
  SPOOL_HOST_DEVICE int derivative(By<0>, Unread, Unread) const { return 1; }
  SPOOL_HOST_DEVICE int derivative(By<1>, Unread, Unread) const { return -1; }
};

struct Mul {
  using OfSpool = void;
  static constexpr const char* name = "mul";
  static constexpr double flops = 1;
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b) const {
    return a * b;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<0>, Unread, T b) const {
    return b;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<1>, T a, Unread) const {
    return a;
  }
};

struct Div {
  using OfSpool = void;
  static constexpr const char* name = "div";
  template <class T>
  SPOOL_HOST_DEVICE T value(T a, T b) const {
    return a / b;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<0>, Unread, T b) const {
    return 1 / b;
  }
  template <class T>
  SPOOL_HOST_DEVICE T derivative(By<1>, Unread, T b, T y) const {
    return -y / b;
  }
};

struct Relu {
  using OfSpool = void;
  static constexpr const char* name = "relu";
  static constexpr double flops = 1;
  SPOOL_HOST_DEVICE auto value(auto x) const { return x < 0 ? 0 : x; }  // NaN stays
  SPOOL_HOST_DEVICE int derivative(Unread, auto y) const { return y > 0 ? 1 : 0; }
};

struct Silu {
  using OfSpool = void;
  static constexpr const char* name = "silu";
  static constexpr double flops = 20;
  SPOOL_HOST_DEVICE auto value(auto x) const { return x * math::sigmoid(x); }
  SPOOL_HOST_DEVICE auto derivative(auto x) const {
    const auto s = math::sigmoid(x);
    return s * (1 + x * (1 - s));
  }
};

struct Sigmoid {
  using OfSpool = void;
  static constexpr const char* name = "sigmoid";
  static constexpr double flops = 20;
  SPOOL_HOST_DEVICE auto value(auto x) const { return math::sigmoid(x); }
  SPOOL_HOST_DEVICE auto derivative(Unread, auto y) const { return y * (1 - y); }
};

struct Tanh {
  using OfSpool = void;
  static constexpr const char* name = "tanh";
  static constexpr double flops = 20;
  SPOOL_HOST_DEVICE auto value(auto x) const { return math::tanh(x); }
  SPOOL_HOST_DEVICE auto derivative(Unread, auto y) const { return 1 - y * y; }
};

struct Exp {
  using OfSpool = void;
  static constexpr const char* name = "exp";
  static constexpr double flops = 20;
  SPOOL_HOST_DEVICE auto value(auto x) const { return math::exp(x); }
  SPOOL_HOST_DEVICE auto derivative(Unread, auto y) const { return y; }
};

struct Log {
  using OfSpool = void;
  static constexpr const char* name = "log";
  static constexpr double flops = 20;
  SPOOL_HOST_DEVICE auto value(auto x) const { return math::log(x); }
  SPOOL_HOST_DEVICE auto derivative(auto x) const { return 1 / x; }
};

struct Square {
  using OfSpool = void;
  static constexpr const char* name = "square";
  static constexpr double flops = 1;
  SPOOL_HOST_DEVICE auto value(auto x) const { return x * x; }
  SPOOL_HOST_DEVICE auto derivative(auto x) const { return 2 * x; }
};

}  // namespace spool::functors

// Calls what(functor, number of inputs) for each of them.
#define SPOOL_EACH_FUNCTOR(what)                                                                   \
  what(Add, 2) what(Sub, 2) what(Mul, 2) what(Div, 2) what(Relu, 1) what(Silu, 1) what(Sigmoid, 1) \
      what(Tanh, 1) what(Exp, 1) what(Log, 1) what(Square, 1)
