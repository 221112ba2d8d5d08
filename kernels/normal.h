#pragma once

// Normal numbers, out[i] = deviation * z[i]; z is standard normal by Box and Muller (1958), from
// the four words w of Philox with key `seed` and counter (i/4, .., tensor, 0):
//   z[4j]   = r0 cos(2 pi u1)   z[4j+1] = r0 sin(2 pi u1)   r0 = sqrt(-2 log((w0 + 1) 2^-32))
//   z[4j+2] = r2 cos(2 pi u3)   z[4j+3] = r2 sin(2 pi u3)   u1 = w1 2^-32
// with r2 and u3 from w2 and w3 in the same way.  A value depends only on the seed, the number of
// the tensor and its index, which is counted from `first` where `out` is a piece of the tensor.

#include "spool/kernels/launch.h"

namespace spool {

struct NormalFill {
  static constexpr const char* name = "normal_fill";
  View out;  // any floating type
  float deviation = 1;
  uint64_t seed = 0;
  uint32_t tensor = 0;
  int64_t first = 0;  // a multiple of 4
  void check_arguments() const;
  Cost cost() const { return {40.0 * static_cast<double>(out.numel()), bytes(out)}; }
};

void run(const NormalFill&, CpuStream&);
void run(const NormalFill&, CudaStream&);

}  // namespace spool
