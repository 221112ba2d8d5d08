#pragma once

// Sums and maxima on one thread, in a fixed order that a compiler can vectorise.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace spool::cpu {

// op of all lanes, by halves.
template <class A, size_t lanes, class Op>
A fold_lanes(A (&side)[lanes], Op op) {
  for (size_t width = lanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) side[j] = op(side[j], side[j + width]);
  }
  return side[0];
}

// The lanes of a sum or a maximum of values of this type: so many that the latency of op does not
// limit the speed.
template <class A>
constexpr int64_t fold_width = 256 / sizeof(A);

// Folds f(i) for i in [0, n) with op: f(i) in lane i mod fold_width, then the lanes by halves.
template <class A, class F, class Op>
A fold(int64_t n, A identity, F f, Op op) {
  constexpr int64_t lanes = fold_width<A>;
  A side[lanes];
  std::fill_n(side, lanes, identity);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int64_t j = 0; j < lanes; ++j) side[j] = op(side[j], f(i + j));
  }
  for (int64_t j = 0; i + j < n; ++j) side[j] = op(side[j], f(i + j));
  return fold_lanes(side, op);
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
