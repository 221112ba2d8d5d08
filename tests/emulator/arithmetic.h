#pragma once

// CUDA's arithmetic functions: fast approximations, bit operations, and conversions of bfloat16 and
// half.

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "device_types.h"

using std::max;
using std::min;

namespace emulator {
inline float reciprocal(float x) { return 1.0f / x; }
inline float reciprocal_root(float x) { return 1.0f / std::sqrt(x); }
inline float root(float x) { return std::sqrt(x); }
inline float exp(float x) { return std::exp(x); }
inline float exp2(float x) { return std::exp2(x); }
inline float log(float x) { return std::log(x); }
inline float power(float x, float y) { return std::pow(x, y); }
inline float sum(float x, float y) { return x + y; }
inline float quotient(float x, float y) { return x / y; }
inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline void sine_and_cosine_of_turns(float half_turns, float* sine, float* cosine) {
  const double angle = std::numbers::pi * static_cast<double>(half_turns);
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}
}  // namespace emulator

// Macros, as glibc declares some of these names itself.
#define __frcp_rn emulator::reciprocal
#define __frsqrt_rn emulator::reciprocal_root
#define rsqrtf emulator::reciprocal_root
#define __fsqrt_rn emulator::root
#define __expf emulator::exp
#define __exp2f emulator::exp2
#define __logf emulator::log
#define __powf emulator::power
#define __fdividef emulator::quotient
#define __fadd_rn emulator::sum
#define __fdiv_rn emulator::quotient
#define sincospif emulator::sine_and_cosine_of_turns
#define __fmaf_rn emulator::multiply_add

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {0x7fff};
  const uint32_t odd = bits >> 16 & 1;  // ties go to the even neighbour
  return {static_cast<uint16_t>((bits + 0x7fff + odd) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) {
  return {__bfloat162float(v.x), __bfloat162float(v.y)};
}

// Counts the units of the last place, of which a number in [2^e, 2^(e+1)) has 1024 to 2047.
inline __half __float2half_rn(float x) {
  if (std::isnan(x)) return {0x7fff};
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
  const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return {static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + units))};
}
inline float __half2float(__half x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  float value = std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction),
                           std::max(exponent, 1) - 25);
  if (exponent == 31) value = fraction ? NAN : INFINITY;
  return x.bits & 0x8000 ? -value : value;
}

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
