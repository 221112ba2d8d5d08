#pragma once

// Rounding to i8 that respects NaN, for kernels that are compiled with the library.

#include <cmath>
#include <cstdint>

namespace spool::cpu {

// The nearest i8, ties to even, or the end of the range; 0 for NaN.
template <class A>
[[gnu::always_inline]] inline int8_t nearest_i8(A x) {
  const A bounded = x < A{-128} ? A{-128} : x > A{127} ? A{127} : std::isnan(x) ? A{0} : x;
  return static_cast<int8_t>(static_cast<int32_t>(std::rint(bounded)));
}

}  // namespace spool::cpu
