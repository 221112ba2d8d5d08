#pragma once

// Mean squared error of rows, and its gradient.
//   losses[n] = 1/C sum_c (x[n,c] - y[n,c])^2
//   dx[n,c] (+)= 2/C (x[n,c] - y[n,c]) g[n]       dy[n,c] (+)= -2/C (x[n,c] - y[n,c]) g[n]
//   g[n] = factor * scale[0] * upstream[n or 0]
// Computed in f32 (f64 for f64); sums have an order that depends on C alone.
//
// What is written shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct SquaredErrorForward {
  static constexpr const char* name = "squared_error_forward";
  View losses;  // (N), f32 (f64 for f64)
  View x, y;    // (N, C), of one type
  void check_arguments() const;
  Cost cost() const {
    return {3.0 * static_cast<double>(x.numel()), bytes(losses, x, y), accumulator(x.dtype())};
  }
};

struct SquaredErrorBackward {
  static constexpr const char* name = "squared_error_backward";
  Grad dx = {}, dy = {};  // (N, C), type of x or of its sums; absent: not computed
  View x, y;              // (N, C), of one type
  View upstream;          // (1) or (N), type of losses
  View scale = {};        // (1), type of losses; absent: 1
  double factor = 1;
  void check_arguments() const;
  Cost cost() const {
    return {5.0 * static_cast<double>(x.numel()), bytes(dx, dy, x, y), accumulator(x.dtype())};
  }
};

void run(const SquaredErrorForward&, CpuStream&);
void run(const SquaredErrorBackward&, CpuStream&);
void run(const SquaredErrorForward&, CudaStream&);
void run(const SquaredErrorBackward&, CudaStream&);

}  // namespace spool
