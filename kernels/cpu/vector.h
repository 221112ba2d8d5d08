#pragma once

// Vectors as wide as the processor's registers.

#include <cstddef>
#include <cstdint>
#include <utility>

// The attribute that makes a lambda inline.
#define SPOOL_INLINE __attribute__((always_inline))

namespace spool::cpu {

#if defined(__AVX512F__)
constexpr int64_t vector_bytes = 64;
#elif defined(__AVX__)
constexpr int64_t vector_bytes = 32;
#else
constexpr int64_t vector_bytes = 16;
#endif

template <class S>
struct Vector {
  typedef S type __attribute__((vector_size(vector_bytes), may_alias));
  static constexpr int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(S));
};

template <class S, size_t step, size_t... i>
void trade(typename Vector<S>::type& a, typename Vector<S>::type& b, std::index_sequence<i...>) {
  constexpr size_t lanes = sizeof...(i);
  const auto upper = __builtin_shufflevector(a, b, (i & step ? lanes + i - step : i)...);
  b = __builtin_shufflevector(a, b, (i & step ? lanes + i : i + step)...);
  a = upper;
}

// Swaps the off-diagonal blocks of `step` columns of two rows of a square.
template <class S, size_t step>
void trade(typename Vector<S>::type& a, typename Vector<S>::type& b) {
  trade<S, step>(a, b, std::make_index_sequence<static_cast<size_t>(Vector<S>::lanes)>());
}

template <class F, int... i>
[[gnu::always_inline]] inline void unrolled(const F& f, std::integer_sequence<int, i...>) {
  (f(i), ...);
}

// f(0), ..., f(n - 1), unrolled, so that arrays of vectors indexed by the argument stay in
// registers.
template <int n, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  unrolled(f, std::make_integer_sequence<int, n>());
}

}  // namespace spool::cpu
