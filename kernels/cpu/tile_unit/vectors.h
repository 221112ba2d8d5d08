#pragma once

// Vectors of 64 bytes, the length of a tile's row, on any processor.  Sources that are compiled for
// different processors include this, so all functions are inlined.

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi"  // no vector passes between functions that are not inlined

// A function that no other source shares.
#define SPOOL_TILES_INLINE [[gnu::always_inline]] inline
#define SPOOL_TILES_LAMBDA __attribute__((always_inline))

namespace spool::cpu::tiles {

typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint64_t LongWords __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(64)));     // 32 bf16
typedef uint16_t FewHalves __attribute__((vector_size(32)));  // 16 bf16
typedef uint32_t Quarter __attribute__((vector_size(16)));    // of a vector

template <class V>
SPOOL_TILES_INLINE V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
SPOOL_TILES_INLINE void store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}
template <class To, class From>
SPOOL_TILES_INLINE To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

SPOOL_TILES_INLINE Floats all(float x) { return x - Floats{}; }

// 16 bf16 as f32, exactly.
SPOOL_TILES_INLINE Floats widen(const uint16_t* from) {
  return bits_of<Floats>(__builtin_convertvector(load<FewHalves>(from), Words) << 16);
}

// Denormal numbers become 0, as everywhere on the tile unit.
SPOOL_TILES_INLINE Words without_denormals(const Words& x) {
  const Words denormal = bits_of<Words>((x & 0x7f800000u) == 0u);
  return x & ~(denormal & 0x7fffffffu);
}
SPOOL_TILES_INLINE Floats without_denormals(const Floats& x) {
  return bits_of<Floats>(without_denormals(bits_of<Words>(x)));
}

// To the nearest bf16, of two the even one; a denormal number becomes 0 and a NaN a quiet NaN: what
// VCVTNEPS2BF16 does.
SPOOL_TILES_INLINE FewHalves narrow(const Floats& x) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
  return bits_of<FewHalves>(_mm512_cvtneps_pbh(bits_of<__m512>(x)));
#else
  const Words u = bits_of<Words>(x), flushed = without_denormals(u);
  const Words nan = bits_of<Words>((u & 0x7fffffffu) > 0x7f800000u);
  const Words nearest = (flushed + 0x7fffu + (flushed >> 16 & 1u)) >> 16;
  const Words quiet = u >> 16 | 0x40u;
  return __builtin_convertvector((nan & quiet) | (~nan & nearest), FewHalves);
#endif
}
SPOOL_TILES_INLINE Halves narrow(const Floats& first, const Floats& second) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
  return bits_of<Halves>(_mm512_cvtne2ps_pbh(bits_of<__m512>(second), bits_of<__m512>(first)));
#else
  FewHalves parts[2] = {narrow(first), narrow(second)};
  return load<Halves>(parts);
#endif
}

// a * b + c, rounded once.
SPOOL_TILES_INLINE Floats fused(const Floats& a, const Floats& b, const Floats& c) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
  return bits_of<Floats>(
      _mm512_fmadd_ps(bits_of<__m512>(a), bits_of<__m512>(b), bits_of<__m512>(c)));
#else
  Floats sum = c;
  for (int i = 0; i < 16; ++i) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return sum;
#endif
}

}  // namespace spool::cpu::tiles
