// Public: one of the headers of docs/public-headers.md.
#pragma once

// Rows in eight bits with a scale each, for values that are stored and read back later, such as
// what a tape saves for backward:
//
// scale[n] = max over c of |x[n, c]| / 127
// q[n, c]  = x[n, c] / scale[n], to the nearest integer     Quantize
// x[n, c]  = scale[n] * q[n, c]                             Dequantize
//
// No argument shares memory with another.  The error is at most half of scale[n].  A row with NaN
// or infinity comes back as NaN.

#include "spool/kernels/launch.h"

namespace spool {

struct Quantize {
  static constexpr const char* name = "quantize";
  View q;      // (N.., C), i8
  View scale;  // (N..), f32: an element for each row
  View x;      // (N.., C), any type that is computed in
  void check_arguments() const;
  Cost cost() const { return {2.0 * static_cast<double>(x.numel()), bytes(q, scale, x)}; }
};

struct Dequantize {
  static constexpr const char* name = "dequantize";
  View x;      // (N.., C), any type that is computed in
  View q;      // (N.., C), i8
  View scale;  // (N..), f32
  void check_arguments() const;
  Cost cost() const { return {static_cast<double>(x.numel()), bytes(q, scale, x)}; }
};

void run(const Quantize&, CpuStream&);
void run(const Dequantize&, CpuStream&);
void run(const Quantize&, CudaStream&);
void run(const Dequantize&, CudaStream&);

}  // namespace spool
