#pragma once

// Integer division that rounds up, and rounding up to a multiple.

namespace spool {

// a / b rounded up; a >= 0, b > 0.
template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// The smallest multiple of `step` that is at least n; n >= 0, step > 0.
template <class T>
constexpr T round_up(T n, T step) {
  return ceil_div(n, step) * step;
}

}  // namespace spool
