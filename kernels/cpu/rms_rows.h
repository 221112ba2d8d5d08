#pragma once

// One row of the kernels that divide by a root mean square: of rms_norm, whose rows are tokens, and
// of head_norm, whose rows are heads.  Formulas are those of kernels/rms_norm.h.

#include <cmath>

#include "spool/kernels/cpu/loops.h"

namespace spool::cpu {

// Writes y; returns r.
template <class T>
accumulator_t<T> rms_forward_row(const T* x, const T* weight, int64_t C, double eps, T* y) {
  using A = accumulator_t<T>;
  const A squares = sum<A>(C, [=](int64_t c) { return A(x[c]) * A(x[c]); });
  const A r = 1 / std::sqrt(squares / static_cast<A>(C) + static_cast<A>(eps));
  put_all(C, Sink<T, false>{y}, [=](int64_t c) { return A(x[c]) * r * A(weight[c]); });
  return r;
}

template <class T>
struct RmsBackwardRow {
  using A = accumulator_t<T>;
  const T *dy, *x, *weight;
  A r;

  // Adds the row's terms of dweight.
  void add_dweight(int64_t C, A* dweight) const {
    const RmsBackwardRow row = *this;
    put_all(C, Sink<A, true>{dweight},
            [=](int64_t c) { return A(row.dy[c]) * (A(row.x[c]) * row.r); });
  }
  // dx may be dy.
  template <class Out>
  void put_dx(int64_t C, const Out& dx) const {
    const RmsBackwardRow row = *this;
    const A products = sum<A>(
        C, [=](int64_t c) { return A(row.dy[c]) * A(row.weight[c]) * (A(row.x[c]) * row.r); });
    const A share = products / static_cast<A>(C);
    put_all(C, dx, [=](int64_t c) {
      return row.r * (A(row.dy[c]) * A(row.weight[c]) - A(row.x[c]) * row.r * share);
    });
  }
};

}  // namespace spool::cpu
