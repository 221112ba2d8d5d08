#pragma once

// Softmax of rows, and its gradient.
//   y[n,c] = exp(x[n,c] - m[n]) / sum_k exp(x[n,k] - m[n]),  m[n] = max_c x[n,c]
//   dx[n,c] (+)= y[n,c] (dy[n,c] - sum_k dy[n,k] y[n,k])
// Computed in f32 (f64 for f64) and rounded once.  An element of -inf has probability 0.  A row of
// -inf alone has no softmax, 0/0: it is NaN, as is a row with a NaN or +inf.
//
// y may be x, and dx may be dy, of the same type; otherwise what is written shares no memory with
// other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct SoftmaxForward {
  static constexpr const char* name = "softmax_forward";
  View y, x;  // (N, C), of one type
  void check_arguments() const;
  Cost cost() const {
    return {20.0 * static_cast<double>(x.numel()), bytes(y, x), accumulator(x.dtype())};
  }
};

struct SoftmaxBackward {
  static constexpr const char* name = "softmax_backward";
  Grad dx;     // (N, C), type of y or of its sums
  View dy, y;  // (N, C), of one type
  void check_arguments() const;
  Cost cost() const {
    return {4.0 * static_cast<double>(y.numel()), bytes(dx, dy, y), accumulator(y.dtype())};
  }
};

void run(const SoftmaxForward&, CpuStream&);
void run(const SoftmaxBackward&, CpuStream&);
void run(const SoftmaxForward&, CudaStream&);
void run(const SoftmaxBackward&, CudaStream&);

}  // namespace spool
