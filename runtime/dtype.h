#pragma once

// The scalar types of tensors.  f64 is for tests: gradients against finite differences.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "spool/runtime/names.h"

namespace spool {

enum class DType : uint8_t { f64, f32, bf16, i32, u16 };
template <>
inline constexpr std::array enumerator_names<DType>{"f64", "f32", "bf16", "i32", "u16"};

constexpr size_t size_of(DType t) {
  constexpr EnumArray<DType, size_t> bytes{{8, 4, 2, 4, 2}};
  return bytes[t];
}

// The type of sums and statistics over values of this type.
constexpr DType accumulator(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// The upper half of an f32, rounded to nearest, ties to even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  constexpr bf16(float x) : bits(round(std::bit_cast<uint32_t>(x))) {}
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

 private:
  // Selects before it shifts: compilers vectorise this order best.
  static constexpr uint16_t round(uint32_t u) {
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__  // the compiler takes x != x for false
    const bool is_nan = (u & 0x7fffffff) > 0x7f800000;
#else
    const float x = std::bit_cast<float>(u);
    const bool is_nan = x != x;
#endif
    const uint32_t rounded = u + 0x7fff + ((u >> 16) & 1);
    return static_cast<uint16_t>((is_nan ? u | 0x400000 : rounded) >> 16);
  }
};

template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::u16;
}

}  // namespace spool
