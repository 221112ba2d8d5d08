#pragma once

// ClipFactor: norm = sqrt(squared[0]); clip = {min(1, limit / norm), norm, isfinite(norm)}; with
// limit 0 the factor is 1.

#include "spool/kernels/launch.h"

namespace spool {

struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View clip, squared;  // f32 (3), f64 (1)
  float limit = 0;
  Cost cost() const { return {4, bytes(clip, squared)}; }
  void check_arguments() const {
    check(clip.dtype() == DType::f32 && clip.numel() == 3,
          "clip_factor: clip must be f32 (3), not ", clip.spec());
    check(squared.dtype() == DType::f64 && squared.numel() == 1,
          "clip_factor: squared must be f64 (1), not ", squared.spec());
  }
};

void run(const ClipFactor&, CpuStream&);
void run(const ClipFactor&, CudaStream&);

}  // namespace spool
