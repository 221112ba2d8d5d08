#pragma once

// Scalars of the cpu kernels: dispatch on their type, accumulator types, and exponentials that a
// compiler can vectorise.
//
// The exponentials depend on the order of their operations and on NaN and infinity, which flags
// such as -ffast-math give up.  A file compiled with such flags calls functions of the library
// instead, which give the same bits, though one value at a time; there std::exp is faster.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "spool/runtime/check.h"
#include "spool/runtime/dtype.h"

namespace spool::cpu {

// The type that values of type T are computed in: f32, or f64 for f64.
template <class T>
struct Accumulator {
  using type = float;
};
template <>
struct Accumulator<double> {
  using type = double;
};
template <class T>
using accumulator_t = typename Accumulator<T>::type;

// Calls f with a value of the C++ type of a floating dtype: dispatch(t, [&](auto x) { ... }).
template <class F>
void dispatch(DType t, F&& f) {
  if (t == DType::f32) return f(float{});
  if (t == DType::bf16) return f(bf16{});
  check(t == DType::f64, "a kernel on the cpu takes f32, bf16 or f64, not ", name(t),
        is_only_stored(t) ? "; convert it first" : "");
  f(double{});
}
// The same with the storage types.
template <class F>
void dispatch_stored(DType t, F&& f) {
  if (t == DType::f16) return f(f16{});
  if (t == DType::i8) return f(int8_t{});
  dispatch(t, f);
}

// Calls f with a value of the type of a gradient, which is T or its accumulator type.
template <class T, class F>
void dispatch_gradient(DType t, F&& f) {
  if (t == dtype_of<T>()) return f(T{});
  check(t == dtype_of<accumulator_t<T>>(), "the gradient of ", name(dtype_of<T>()),
        " values must have their type or ", name(dtype_of<accumulator_t<T>>()), ", not ", name(t));
  f(accumulator_t<T>{});
}

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#define SPOOL_FAST_MATH 1
#else
#define SPOOL_FAST_MATH 0
#endif

// exp(), tanh() and log() below, compiled with the library.
namespace compiled {
float exp(float x);
float tanh(float x);
float log(float x);
}  // namespace compiled

#if SPOOL_FAST_MATH
inline namespace fast_math {
inline float exp(float x) { return compiled::exp(x); }
inline float tanh(float x) { return compiled::tanh(x); }
inline float log(float x) { return compiled::log(x); }
}  // namespace fast_math
#else

// e^x within 1 ulp for normal results: 2^n times a polynomial on [-ln2/2, ln2/2], minimax in the
// relative error.  0 below -87.33654, infinity above 88.72283, NaN for NaN.
[[gnu::always_inline]] inline float exp(float x) {
#if defined(__clang__)
#pragma clang fp reassociate(off)  // for -funsafe-math-optimizations, which defines no macro
#endif
  constexpr float log2e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float lowest = -87.33654f, highest = 88.72283f;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits of the sum.
  constexpr float shift = 0x1.8p23f;
  const float shifted = x * log2e + shift, n = shifted - shift;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.38146118e-3f;
  p = p * r + 8.36871053e-3f;
  p = p * r + 4.16683874e-2f;
  p = p * r + 1.66665207e-1f;
  p = p * r + 4.99999935e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Adding n to the exponent of p is safe: p < 1 where n = 128, and p >= 1 where n = -126.
  const float y =
      std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  const float high = x <= highest ? y : x * std::numeric_limits<float>::infinity();
  return x < lowest ? 0.0f : high;
}

// tanh within 3 ulp; odd, +-1 for large x.  Near 0, where the quotient of exponentials loses
// digits, a polynomial (Cephes tanhf).
[[gnu::always_inline]] inline float tanh(float x) {
#if defined(__clang__)
#pragma clang fp reassociate(off)
#endif
  const float magnitude = std::fabs(x), s = x * x;
  const float large = 1.0f - 2.0f / (exp(2 * magnitude) + 1.0f);
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float small = p * s * magnitude + magnitude;
  return std::copysign(magnitude < 0.625f ? small : large, x);
}

// log x within 2 ulp: x is 2^n m with m in [sqrt(1/2), sqrt(2)), and log m a polynomial (Cephes
// logf).  -infinity for 0, NaN below.
[[gnu::always_inline]] inline float log(float x) {
#if defined(__clang__)
#pragma clang fp reassociate(off)
#endif
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr uint32_t root_half = 0x3f3504f3;  // the bits of sqrt(1/2)
  const bool is_subnormal = x < std::numeric_limits<float>::min();
  const auto bits = std::bit_cast<uint32_t>(is_subnormal ? x * 0x1p23f : x);
  const int32_t shift = static_cast<int32_t>(bits - root_half) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(shift) << 23));
  const float n = static_cast<float>(shift) - (is_subnormal ? 23.0f : 0.0f);
  const float f = m - 1.0f, s = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float low = p * f * s - 2.12194440e-4f * n - 0.5f * s;
  const float y = (f + low) + 0.693359375f * n;
  const float positive = x < infinity ? y : x;
  return x > 0 ? positive : (x == 0 ? -infinity : std::numeric_limits<float>::quiet_NaN());
}
#endif

inline double exp(double x) { return std::exp(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double log(double x) { return std::log(x); }

}  // namespace spool::cpu
