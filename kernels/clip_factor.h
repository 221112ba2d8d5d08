#pragma once

// The factor that clips gradients: norm = sqrt(squared[0]), clip = {min(1, limit / norm), norm,
// isfinite(norm)}; with limit 0 the factor is 1.  clip and squared do not overlap.

#include "spool/kernels/arguments.h"
#include "spool/kernels/launch.h"

namespace spool {

struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View clip, squared;  // f32 (3), f64 (1)
  float limit = 0;
  Cost cost() const { return {4, bytes(clip, squared)}; }
  void check_arguments() const {
    const Arguments a(name);
    a.elements("clip", clip, DType::f32, 3);
    a.elements("squared", squared, DType::f64, 1);
    a.apart("clip", clip, {{"squared", squared}});
  }
};

void run(const ClipFactor&, CpuStream&);
void run(const ClipFactor&, CudaStream&);

}  // namespace spool
