#pragma once

// The gradient of a bias: dbias[c] (+)= sum_n dy[n,c].  (Matmul adds the bias in forward.)  dbias
// shares no memory with dy.

#include "spool/kernels/launch.h"

namespace spool {

struct BiasBackward {
  static constexpr const char* name = "bias_backward";
  Grad dbias;  // (C), of the type of dy, or f32
  View dy;     // (N, C)
  View workspace = {};
  void check_arguments() const;

  Cost cost() const {
    return {1.0 * static_cast<double>(dy.numel()), bytes(dbias, dy), accumulator(dy.dtype())};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const BiasBackward&, CpuStream&);
void run(const BiasBackward&, CudaStream&);

}  // namespace spool
