#pragma once

// Dropout (Srivastava et al. 2014): y[i] (+)= x[i] / (1 - p) with probability 1 - p, else 0.  An
// element is kept if uniform(draw) >= p.
// The draw of element i is word (first + i) % 4 of Philox with
//   key      random[0], random[1]                              (the seed)
//   counter  (first + i) / 4 mod 2^32, node, random[2], random[3]       (.., .., step, micro-batch)
// so it depends on the element's position, not on earlier draws.  Backward is the same kernel from
// dy to dx.  y may be x, of the same type; otherwise it shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct Dropout {
  static constexpr const char* name = "dropout";
  Grad y;             // type of x, or f32; same number of elements
  View x;             // any floating type
  View random;        // i32 (4)
  uint32_t node = 0;  // number of this dropout within the step
  int64_t first = 0;  // index of x[0] in the tensor that x is a part of
  float p = 0;        // in [0, 1)
  void check_arguments() const;
  Cost cost() const {
    return {25.0 * static_cast<double>(x.numel()), bytes(y, x), accumulator(x.dtype())};
  }
};

void run(const Dropout&, CpuStream&);
void run(const Dropout&, CudaStream&);

}  // namespace spool
