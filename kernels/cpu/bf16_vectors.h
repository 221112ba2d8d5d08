#pragma once

// Values of bf16 in vectors of f32 as wide as the processor's registers, for the maps that read and
// write much and compute little.  A register of bf16 becomes two vectors, of the values at even
// places and of those at odd ones: a shift and a mask make them, where vectors in the order of
// memory need permutations.
//
// A loop's body takes a span, of a whole vector or of the values that are left at the end, and
// computes the same for both.  So a value has the same bits wherever a slice begins or ends.

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/vector.h"

namespace spool::cpu {

static_assert(std::endian::native == std::endian::little, "an even place is the lower half");

using Floats = Vector<float>::type;
using Words = Vector<uint32_t>::type;

// The values of a span, at even places and at odd ones.
struct Halves {
  static constexpr int64_t size = 2 * Vector<float>::lanes;
  Floats even = {}, odd = {};
};

// f of the halves of each argument.
template <class F, class... V>
[[gnu::always_inline]] inline Halves each(const F& f, const V&... v) {
  return {f(v.even...), f(v.odd...)};
}

[[gnu::always_inline]] inline Floats splat(float x) { return Floats{} + x; }

// The value of a product that no compiler fuses into a sum: else the bits of one result would
// depend on whether another one is wanted.
[[gnu::always_inline]] inline Floats unfused(Floats product) {
#if defined(__AVX512F__)
  asm("" : "+v"(product));
#elif defined(__SSE__)
  asm("" : "+x"(product));
#endif
  return product;
}

// Two vectors in the order of memory, of their values at even places and at odd ones, and back.
template <class S, size_t... i>
[[gnu::always_inline]] inline void interleave(typename Vector<S>::type& a,
                                              typename Vector<S>::type& b,
                                              std::index_sequence<i...>) {
  constexpr size_t lanes = sizeof...(i);
  const auto first = __builtin_shufflevector(a, b, (i / 2 + i % 2 * lanes)...);
  b = __builtin_shufflevector(a, b, (lanes / 2 + i / 2 + i % 2 * lanes)...);
  a = first;
}
template <class S>
[[gnu::always_inline]] inline void interleave(typename Vector<S>::type& even,
                                              typename Vector<S>::type& odd) {
  interleave<S>(even, odd, std::make_index_sequence<size_t{Vector<S>::lanes}>());
}
template <size_t... i>
[[gnu::always_inline]] inline Halves halves_of(Floats a, Floats b, std::index_sequence<i...>) {
  return {__builtin_shufflevector(a, b, (2 * i)...), __builtin_shufflevector(a, b, (2 * i + 1)...)};
}

// Rounds as bf16 does, but for one thing: the lower 16 bits of a NaN must be 0, as they are in a
// NaN that comes from bf16 values or from an operation, and as plain_nan() makes them.
[[gnu::always_inline]] inline Words round_upper(Floats x) {
  const Words u = (Words)x;
  return u + 0x7fffu + ((u >> 16) & 1u);
}
inline float plain_nan(float x) { return x == x ? x : std::numeric_limits<float>::quiet_NaN(); }

// Consecutive places of memory: those of a whole vector of bf16, or `rest` of them.
template <bool whole>
struct Span {
  static constexpr size_t size = Halves::size;
  size_t rest = size;

  // Places beyond the span hold `fill`, two of bf16.
  [[gnu::always_inline]] Halves load(const bf16* from, uint32_t fill = 0) const {
    Words both = Words{} + fill;
    std::memcpy(&both, from, sizeof(bf16) * count());
    return {(Floats)(both << 16), (Floats)(both & 0xffff0000u)};
  }
  [[gnu::always_inline]] Halves load(const float* from) const {
    Floats both[2] = {};
    std::memcpy(&both, from, sizeof(float) * count());
    return halves_of(both[0], both[1], std::make_index_sequence<size / 2>());
  }
  [[gnu::always_inline]] void store(bf16* to, const Halves& v) const {
    const Words both = (round_upper(v.even) >> 16) | (round_upper(v.odd) & 0xffff0000u);
    std::memcpy(static_cast<void*>(to), &both, sizeof(bf16) * count());
  }
  [[gnu::always_inline]] void store(float* to, const Halves& v) const {
    Floats both[2] = {v.even, v.odd};
    interleave<float>(both[0], both[1]);
    std::memcpy(to, &both, sizeof(float) * count());
  }
  template <class G, bool add>
  [[gnu::always_inline]] void put(const Sink<G, add>& out, int64_t i, Halves v) const {
    if constexpr (add) {
      const Halves old = load(out.to + i);
      v = {v.even + old.even, v.odd + old.odd};
    }
    store(out.to + i, v);
  }
  // 0 beyond the span.
  [[gnu::always_inline]] Halves within(const Halves& v) const {
    if constexpr (whole) return v;
    float all[size];
    Span<true>().store(all, v);
    return load(all);
  }

 private:
  [[gnu::always_inline]] size_t count() const { return whole ? size : rest; }
};

// body(i, span) for places [0, n), in order.
template <class Body>
[[gnu::always_inline]] inline void for_spans(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + Halves::size <= n; i += Halves::size) body(i, Span<true>());
  if (i < n) body(i, Span<false>{static_cast<size_t>(n - i)});
}

template <size_t by, size_t... i>
[[gnu::always_inline]] inline Floats rotated(Floats v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, ((i + by) % sizeof...(i))...);
}
// op of all lanes, by halves.
template <size_t width = size_t{Vector<float>::lanes} / 2, class Op>
[[gnu::always_inline]] inline float fold_lanes(Floats v, const Op& op) {
  if constexpr (width == 0) {
    return v[0];
  } else {
    constexpr auto lanes = std::make_index_sequence<size_t{Vector<float>::lanes}>();
    return fold_lanes<width / 2>(op(v, rotated<width>(v, lanes)), op);
  }
}
[[gnu::always_inline]] inline float sum_of(Floats v) {
  return fold_lanes(v, [](Floats a, Floats b) SPOOL_INLINE { return a + b; });
}

// Adds the squares of the lower and of the upper half of v.
template <size_t... i>
[[gnu::always_inline]] inline void add_squares(Floats v, Vector<double>::type& lower,
                                               Vector<double>::type& upper,
                                               std::index_sequence<i...>) {
  using V = Vector<double>::type;
  const auto first = __builtin_shufflevector(v, v, i...);
  const auto second = __builtin_shufflevector(v, v, (sizeof...(i) + i)...);
#if defined(__AVX512F__)  // g++ converts quarters, and joins them
  const V low = (V)_mm512_maskz_cvtps_pd(0xff, (__m256)first);
  const V high = (V)_mm512_maskz_cvtps_pd(0xff, (__m256)second);
#else
  const V low = __builtin_convertvector(first, V), high = __builtin_convertvector(second, V);
#endif
  lower += low * low;
  upper += high * high;
}
[[gnu::always_inline]] inline void add_squares(Floats v, Vector<double>::type& lower,
                                               Vector<double>::type& upper) {
  add_squares(v, lower, upper, std::make_index_sequence<size_t{Vector<double>::lanes}>());
}

// The larger of x and low; NaN for NaN.
[[gnu::always_inline]] inline Floats at_least(float low, Floats x) {
#if defined( \
    __AVX512F__)  // g++ makes a comparison and a choice of the other, and warns without a mask
  return (Floats)_mm512_maskz_max_ps(0xffff, _mm512_set1_ps(low), (__m512)x);
#else
  return x < low ? splat(low) : x;
#endif
}

// Adding it rounds to an integer and leaves that in the lowest bits of the sum.
constexpr float integer_shift = 0x1.8p23f;

// 2^n 2^r for r in [-1/2, 1/2], where n + integer_shift is given: a polynomial, minimax in the
// relative error of 1e-7 and 1 at 0.
[[gnu::always_inline]] inline Floats scaled_power(Floats shifted, Floats r) {
  Floats p = 1.32647273e-3f * r + 9.67151299e-3f;
  p = p * r + 5.55073358e-2f;
  p = p * r + 2.40222424e-1f;
  p = p * r + 6.93147004e-1f;
  p = p * r + 1.0f;
  return (Floats)((Words)p + ((Words)shifted << 23));
}

// 2^x for x in [-126, 128); NaN for a NaN that the rounding above takes; anything for others.
[[gnu::always_inline]] inline Floats power_of_two(Floats x) {
  const Floats shifted = x + integer_shift, n = shifted - integer_shift;
  return scaled_power(shifted, x - n);
}

// e^x for x <= 0: 0 where it is below 1e-30, so that its products are no denormal numbers.
[[gnu::always_inline]] inline Floats exp_of_negative(Floats x) {
  constexpr float log2e = 1.44269504088896341f, lowest = -69.0f;
  const Floats shifted = x * log2e + integer_shift, n = shifted - integer_shift;
  const Floats p = scaled_power(shifted, x * log2e - n);
  return x < lowest ? Floats{} : p;
}

}  // namespace spool::cpu
