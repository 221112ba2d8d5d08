#pragma once

// Normalisation of each row by its root mean square (Zhang, Sennrich 2019):
//   r[n] = 1 / sqrt(1/C sum_c x[n,c]^2 + eps)      y[n,c] = x[n,c] r[n] weight[c]
// Backward, with g[n,c] = dy[n,c] weight[c]:
//   dx[n,c] (+)= r[n] (g[n,c] - x[n,c] r[n]^2 1/C sum_c g[n,c] x[n,c])
//   dweight[c] (+)= sum_n dy[n,c] x[n,c] r[n]
// All is computed in f32 (f64 where x is) and rounded once.  dx may be dy; otherwise what is
// written shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct RmsNormForward {
  static constexpr const char* name = "rms_norm_forward";
  View y;          // (N, C)
  View r;          // (N), f32 (f64 where x is)
  View x, weight;  // (N, C), (C), of one type
  double eps = 1e-5;
  void check_arguments() const;
  Cost cost() const {
    return {4.0 * static_cast<double>(x.numel()), bytes(y, r, x, weight), accumulator(x.dtype())};
  }
};

struct RmsNormBackward {
  static constexpr const char* name = "rms_norm_backward";
  Grad dx;             // (N, C), type of x
  Grad dweight;        // (C), type of x or f32; each of dx and dweight may be absent
  View dy, x, weight;  // (N, C), (N, C), (C)
  View r;              // (N), as in forward
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    return {9.0 * static_cast<double>(x.numel()), bytes(dx, dweight, dy, x, weight, r),
            accumulator(x.dtype())};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const RmsNormForward&, CpuStream&);
void run(const RmsNormBackward&, CpuStream&);
void run(const RmsNormForward&, CudaStream&);
void run(const RmsNormBackward&, CudaStream&);

}  // namespace spool
