#pragma once

// The scalar types of tensors.  f64 is for tests: gradients against finite differences.  f16 and i8
// are for storage: they are copied, offloaded, written to files, and converted by the kernels Cast
// (kernels/elementwise.h) and Quantize (kernels/quantize.h); no op computes in them.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "spool/runtime/names.h"

namespace spool {

enum class DType : uint8_t { f64, f32, bf16, i32, u16, f16, i8 };
template <>
inline constexpr std::array enumerator_names<DType>{"f64", "f32", "bf16", "i32",
                                                    "u16", "f16", "i8"};

constexpr size_t size_of(DType t) {
  constexpr EnumArray<DType, size_t> bytes{{8, 4, 2, 4, 2, 2, 1}};
  return bytes[t];
}

// Types that are only stored, and converted before anything is computed.
constexpr bool is_only_stored(DType t) { return t == DType::f16 || t == DType::i8; }

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

// IEEE 754 binary16.  Rounds to nearest, ties to even; 65520 and more become infinite; NaN stays
// NaN.
struct f16 {
  uint16_t bits = 0;

  f16() = default;
  constexpr f16(float x) : bits(round(std::bit_cast<uint32_t>(x))) {}
  constexpr operator float() const {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
    // The difference of the exponents' biases, twice for infinity and NaN: exponent 31 becomes 255.
    const uint32_t more = magnitude < infinite ? bias : 2 * bias;
    const float normal = std::bit_cast<float>((magnitude << 13) + (more << 23));
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    const float value = magnitude < smallest_normal ? subnormal : normal;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }

 private:
  static constexpr uint32_t infinite = 0x7c00, smallest_normal = 0x400, bias = 112;

  // Computes every case and selects, so that compilers vectorise it.
  static constexpr uint16_t round(uint32_t u) {
    const uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    const uint32_t nearest = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t normal = nearest - (bias << 10);
    // The sum's last bit is worth 2^-24, the smallest subnormal, so the addition rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t subnormal = std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f);
    uint32_t rounded = magnitude < 0x38800000u ? subnormal : normal;  // 2^-14
    rounded = magnitude >= 0x47800000u ? infinite : rounded;          // 2^16
    rounded = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x1ffu) : rounded;
    return static_cast<uint16_t>(rounded | sign);
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
template <>
constexpr DType dtype_of<f16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::i8;
}

}  // namespace spool
