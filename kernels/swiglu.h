#pragma once

// The gated activation of Llama (Shazeer 2020).  A row of x (N, 2 I) has I gates g, then I numbers
// u; with s = 1 / (1 + exp(-g)):
//   y = g s u      dg (+)= dy u s (1 + g (1 - s))      du (+)= dy g s
// All is computed in f32 (f64 where x is) and rounded once.  dx may be x, of the same type;
// otherwise what is written shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  View y, x;  // (N, I), (N, 2 I), of one type
  void check_arguments() const;
  Cost cost() const {
    return {24.0 * static_cast<double>(y.numel()), bytes(y, x), accumulator(x.dtype())};
  }
};

struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  Grad dx;     // (N, 2 I), type of x or f32
  View dy, x;  // (N, I), (N, 2 I), of one type
  void check_arguments() const;
  Cost cost() const {
    return {30.0 * static_cast<double>(dy.numel()), bytes(dx, dy, x), accumulator(x.dtype())};
  }
};

void run(const SwigluForward&, CpuStream&);
void run(const SwigluBackward&, CpuStream&);
void run(const SwigluForward&, CudaStream&);
void run(const SwigluBackward&, CudaStream&);

}  // namespace spool
