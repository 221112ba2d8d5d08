#pragma once

// AdamW (Loshchilov, Hutter 2019), one parameter tensor:
//   g = clip[0] * grad          m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   w = w - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w)
// w is the master where there is one (then the parameter is its rounding), else the parameter.
// What changes from step to step is read from device memory:
//   schedule  f32 (3): lr, 1 - beta1^t, 1 - beta2^t
//   clip      f32 (3): factor, norm of the gradients, whether all is finite (1 or 0)
// Where the gradients are not finite, nothing is changed.
//
// ClipFactor: norm = sqrt(squared[0]); clip = {min(1, limit / norm), norm, isfinite(norm)}; with
// limit 0 the factor is 1.

#include "spool/kernels/launch.h"

namespace spool {

struct AdamW {
  static constexpr const char* name = "adamw";
  View parameter;       // f32 or bf16
  View master = {};     // f32; present where the parameter is bf16
  View m, v;            // f32
  View grad;            // type of the parameter, or f32
  View schedule, clip;  // f32 (3), f32 (3)
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, decay = 0;
  Cost cost() const {
    return {12.0 * static_cast<double>(m.numel()),
            bytes(parameter, grad) + 2 * bytes(m, v, master) + (master ? 0.0 : bytes(parameter))};
  }
};

struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View clip, squared;  // f32 (3), f64 (1)
  float limit = 0;
  Cost cost() const { return {4, bytes(clip, squared)}; }
};

void run(const AdamW&, CpuStream&);
void run(const ClipFactor&, CpuStream&);
void run(const AdamW&, CudaStream&);
void run(const ClipFactor&, CudaStream&);

}  // namespace spool
