#pragma once

// Sums and maxima on one thread, in a fixed order that a compiler can vectorise.

#include <algorithm>
#include <cstdint>
#include <limits>

namespace spool::cpu {

// Folds f(i) for i in [0, n) with op: in many lanes, so that the latency of op does not limit the
// speed; the lanes are then combined by halves.
template <class A, class F, class Op>
A fold(int64_t n, A identity, F f, Op op) {
  constexpr int64_t lanes = 256 / sizeof(A);
  A side[lanes];
  std::fill_n(side, lanes, identity);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int64_t j = 0; j < lanes; ++j) side[j] = op(side[j], f(i + j));
  }
  for (int64_t j = 0; i + j < n; ++j) side[j] = op(side[j], f(i + j));
  for (int64_t width = lanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) side[j] = op(side[j], side[j + width]);
  }
  return side[0];
}

template <class A, class F>
A sum(int64_t n, F f) {
  return fold(n, A{0}, f, [](A a, A b) { return a + b; });
}

template <class A, class F>
A largest(int64_t n, F f) {
  return fold(n, -std::numeric_limits<A>::infinity(), f, [](A a, A b) { return a > b ? a : b; });
}

}  // namespace spool::cpu
