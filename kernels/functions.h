// Public: one of the headers of docs/public-headers.md.
#pragma once

// Math functions for functors that run on a cpu and in a CUDA kernel (map.h), in f32 and f64:
//
//   template <class T>
//   SPOOL_HOST_DEVICE T value(T x) const { return x * math::sigmoid(x); }
//
// On the cpu, the f32 functions up to sigmoid() are within 4 units of the last place, and loops of
// them can be vectorised; the others are the standard library's, one value at a time.  On cuda,
// fast_exp() and fast_reciprocal() are the hardware's approximations, one instruction each besides
// a product: their relative errors are 2^-22 + 1.3 |x| 2^-24 and 2^-23, and subnormal results are
// 0.  sigmoid() uses them; the others are CUDA's functions of full precision.

#include <cmath>
#include <type_traits>

#if defined(__CUDACC__)
#define SPOOL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SPOOL_HOST_DEVICE inline
#endif

// The emulator of CUDA compiles device code for the host, where __CUDA_ARCH__ is not defined.
#if !defined(__CUDA_ARCH__)
#include "spool/kernels/cpu/scalar.h"
#endif

namespace spool::math {

#if defined(__CUDA_ARCH__)
SPOOL_HOST_DEVICE float fast_exp(float x) {
  constexpr float log2_e = 1.44269504088896341f;
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * log2_e));
  return y;
}
SPOOL_HOST_DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SPOOL_HOST_DEVICE float exp(float x) { return ::expf(x); }
SPOOL_HOST_DEVICE float log(float x) { return ::logf(x); }
SPOOL_HOST_DEVICE float tanh(float x) { return ::tanhf(x); }
SPOOL_HOST_DEVICE float sigmoid(float x) { return fast_reciprocal(1 + fast_exp(-x)); }
SPOOL_HOST_DEVICE double exp(double x) { return ::exp(x); }
SPOOL_HOST_DEVICE double log(double x) { return ::log(x); }
SPOOL_HOST_DEVICE double tanh(double x) { return ::tanh(x); }
SPOOL_HOST_DEVICE double sigmoid(double x) { return 1 / (1 + ::exp(-x)); }
#else
SPOOL_HOST_DEVICE float fast_exp(float x) { return cpu::exp(x); }
SPOOL_HOST_DEVICE float fast_reciprocal(float x) { return 1 / x; }
SPOOL_HOST_DEVICE float exp(float x) { return cpu::exp(x); }
SPOOL_HOST_DEVICE float log(float x) { return cpu::log(x); }
SPOOL_HOST_DEVICE float tanh(float x) { return cpu::tanh(x); }
SPOOL_HOST_DEVICE float sigmoid(float x) { return 1 / (1 + cpu::exp(-x)); }
SPOOL_HOST_DEVICE double exp(double x) { return std::exp(x); }
SPOOL_HOST_DEVICE double log(double x) { return std::log(x); }
SPOOL_HOST_DEVICE double tanh(double x) { return std::tanh(x); }
SPOOL_HOST_DEVICE double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
#endif
SPOOL_HOST_DEVICE double fast_exp(double x) { return math::exp(x); }
SPOOL_HOST_DEVICE double fast_reciprocal(double x) { return 1 / x; }

template <class T>
SPOOL_HOST_DEVICE T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
template <class T>
SPOOL_HOST_DEVICE T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <class T>
SPOOL_HOST_DEVICE T abs(T x) {
  return std::fabs(x);
}
template <class T>
SPOOL_HOST_DEVICE T sqrt(T x) {
  return std::sqrt(x);
}
template <class T>
SPOOL_HOST_DEVICE T sin(T x) {
  return std::sin(x);
}
template <class T>
SPOOL_HOST_DEVICE T cos(T x) {
  return std::cos(x);
}
template <class T>
SPOOL_HOST_DEVICE T erf(T x) {
  return std::erf(x);
}
template <class T>
SPOOL_HOST_DEVICE T pow(T x, std::type_identity_t<T> y) {
  return std::pow(x, y);
}

}  // namespace spool::math
