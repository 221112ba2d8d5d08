#pragma once

// Copies to memory that is not read soon: whole lines go past the cache, which then keeps what is
// in it and does not read these lines first.  Other threads may read the copy after fence().

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace spool::cpu::past_cache {

constexpr int64_t line = 64;  // bytes

#if defined(__SSE2__)
inline void copy_line(void* to, const void* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  for (int64_t i = 0; i < line / int64_t{sizeof(__m128i)}; ++i) {
    _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
  }
#endif
}
inline void fence() { _mm_sfence(); }
#else
inline void copy_line(void* to, const void* from) { std::memcpy(to, from, line); }
inline void fence() {}
#endif

inline void copy(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const auto before = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % line);
  int64_t i = std::min(before, bytes);
  std::memcpy(out, in, static_cast<size_t>(i));
  for (; i + line <= bytes; i += line) copy_line(out + i, in + i);
  std::memcpy(out + i, in + i, static_cast<size_t>(bytes - i));
}

}  // namespace spool::cpu::past_cache
