#pragma once

// Layer normalisation (Ba, Kiros, Hinton 2016) of each row:
//   mean[n] = 1/C sum_c x[n,c]      rstd[n] = 1 / sqrt(1/C sum_c (x[n,c] - mean[n])^2 + eps)
//   y[n,c] = h[n,c] * weight[c] + bias[c]      with h[n,c] = (x[n,c] - mean[n]) * rstd[n]
// Backward, with g[n,c] = dy[n,c] * weight[c]:
//   dx[n,c] (+)= rstd[n] * (g[n,c] - 1/C sum_c g[n,c] - h[n,c] * 1/C sum_c g[n,c] h[n,c])
//   dweight[c] (+)= sum_n dy[n,c] h[n,c]       dbias[c] (+)= sum_n dy[n,c]
// dx may be dy; otherwise what is written shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct LayerNormForward {
  static constexpr const char* name = "layer_norm_forward";
  View y;                // (N, C)
  View mean, rstd;       // (N), f32 (f64 where x is)
  View x, weight, bias;  // (N, C), (C), (C), of one type; an absent bias is 0
  double eps = 1e-5;
  void check_arguments() const;
  Cost cost() const {
    return {8.0 * static_cast<double>(x.numel()), bytes(y, mean, rstd, x, weight, bias),
            accumulator(x.dtype())};
  }
};

struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  Grad dx;              // (N, C), type of x
  Grad dweight, dbias;  // (C), type of x or f32; each of dx, dweight and dbias may be absent
  View dy, x, weight;   // (N, C), (N, C), (C)
  View mean, rstd;      // (N), as in forward
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    return {14.0 * static_cast<double>(x.numel()), bytes(dx, dweight, dbias, dy, x, weight),
            accumulator(x.dtype())};
  }
  // Number of dweight and dbias that are present: sums of C numbers for each group of rows.
  int64_t partial_sums() const { return int64_t{bool(dweight)} + int64_t{bool(dbias)}; }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const LayerNormForward&, CpuStream&);
void run(const LayerNormBackward&, CpuStream&);
void run(const LayerNormForward&, CudaStream&);
void run(const LayerNormBackward&, CudaStream&);

}  // namespace spool
