#pragma once

// Sums in f64, in an order that depends only on the numbers of elements:
// SumAll:      out[0] (+)= factor * by[0] * sum_i x[i]       `by` absent: 1
// SquaredNorm: out[g] = sum_i x[j][i]^2                      for many tensors at once
//   over the elements i of granule g: 2048 elements of one tensor, or its last ones; the granules
//   of each tensor follow those of the one before
// SumGranules: out[0] = sum_g granules[g]
//   in order within each block of 1024 granules, then the blocks in order; `granules` is scratch
//   memory afterwards
// `out` may be `by`; otherwise it shares no memory with other arguments.

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

constexpr int64_t norm_granule = 2048, granules_of_block = 1024;

struct SquaredNorm {
  static constexpr const char* name = "squared_norm";
  View out;  // f64, one for each granule
  List<View, 160> x = {};
  void check_arguments() const;
  Cost cost() const {
    Cost sum;
    for (const View& one : x) {
      sum.flops += 2.0 * static_cast<double>(one.numel());
      sum.bytes += bytes(one);
    }
    return sum;
  }
};

struct SumGranules {
  static constexpr const char* name = "sum_granules";
  View out, granules;  // (1), any number; f64
  void check_arguments() const;
  Cost cost() const { return {1.0 * static_cast<double>(granules.numel()), bytes(granules)}; }
};

void run(const SumAll&, CpuStream&);
void run(const SquaredNorm&, CpuStream&);
void run(const SumGranules&, CpuStream&);
void run(const SumAll&, CudaStream&);
void run(const SquaredNorm&, CudaStream&);
void run(const SumGranules&, CudaStream&);

}  // namespace spool
