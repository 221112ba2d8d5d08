#pragma once

// Minimises a convex function of one number by golden sections (Kiefer, Sequential minimax search
// for a maximum, 1953).

#include <algorithm>
#include <utility>

namespace spool {

// The smallest value seen between `low` and `high` with `sections` further sections.  The function
// may be infinite from `low` to some number.
template <class Function>
double min_by_golden_sections(double low, double high, int sections, const Function& f) {
  constexpr double golden = 0.6180339887498949;
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double at_left = f(left), at_right = f(right);
  double min = std::min(at_left, at_right);
  for (int i = 0; i < sections; ++i) {
    if (at_left < at_right) {
      high = right;
      right = std::exchange(left, right - golden * (right - low));
      at_right = std::exchange(at_left, f(left));
    } else {
      low = left;
      left = std::exchange(right, left + golden * (high - left));
      at_left = std::exchange(at_right, f(right));
    }
    min = std::min({min, at_left, at_right});
  }
  return min;
}

}  // namespace spool
