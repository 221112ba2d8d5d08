#pragma once

// What attention backward on the cpu computes first.

#include "spool/kernels/attention.h"
#include "spool/kernels/cpu/loops.h"

namespace spool::cpu {

// delta[b,h,t] = sum_d dy[b,t,h,d] y[b,t,h,d]
template <class T>
void find_delta(const AttentionBackward& k, const AttentionExtents& e, accumulator_t<T>* delta,
                CpuStream& stream) {
  using S = accumulator_t<T>;
  stream.parallel_for(e.B * e.T, piece_rows(e.H * e.D), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t h = 0; h < e.H; ++h) {
        const T* y = k.y.as<T>() + (row * e.H + h) * e.D;
        const T* dy = k.dy.as<T>() + (row * e.H + h) * e.D;
        const auto term = [=](int64_t d) { return static_cast<S>(dy[d]) * static_cast<S>(y[d]); };
        delta[(row / e.T * e.H + h) * e.T + row % e.T] = sum<S>(e.D, term);
      }
    }
  });
}

}  // namespace spool::cpu
