// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// SumAll:      out[0] (+)= factor * by[0] * sum_i x[i]       `by` absent: 1
// SquaredNorm: out[0] (+)= sum_j sum_i x[j][i]^2             for many tensors at once
// Both sum in f64, in an order that depends only on the numbers of elements.  `out` may be `by`;
// otherwise it shares no memory with other arguments.

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

struct SumAll {
  static constexpr const char* name = "sum_all";
  Grad out;  // (1), f32 or f64
  View x;
  double factor = 1;
  View by = {};  // (1), f32 or f64
  View workspace = {};
  void check_arguments() const;
  Cost cost() const { return {1.0 * static_cast<double>(x.numel()), bytes(x)}; }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

struct SquaredNorm {
  static constexpr const char* name = "squared_norm";
  Grad out;  // (1), f64
  List<View, 160> x = {};
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    Cost sum;
    for (const View& one : x) {
      sum.flops += 2.0 * static_cast<double>(one.numel());
      sum.bytes += bytes(one);
    }
    return sum;
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const SumAll&, CpuStream&);
void run(const SquaredNorm&, CpuStream&);
void run(const SumAll&, CudaStream&);
void run(const SquaredNorm&, CudaStream&);

}  // namespace spool
