#pragma once

// AdamW (Loshchilov, Hutter 2019) for many tensors at once:
//   g = clip[0] * grad          m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   w = w - lr rate (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w)
//   schedule  f32 (3): lr, 1 - beta1^t, 1 - beta2^t
// For w, clip, rounding, slices and what may overlap, see weights.h.

#include <array>

#include "spool/kernels/weights.h"

namespace spool {

struct AdamW {
  static constexpr const char* name = "adamw";
  static constexpr int64_t granule = weights_granule;
  struct Entry {
    View parameter;    // f32, or bf16
    View master = {};  // f32; absent where the parameter is f32, or rounded stochastically
    View m, v;         // f32: running means of the gradient and of its square
    View grad;         // type of the parameter, or f32
    float rate = 1, decay = 0;
    uint32_t index = 0;
    int64_t first = 0;  // a multiple of `granule`
    std::array<View, 2> state() const { return {m, v}; }
  };
  List<Entry, 56> tensors = {};  // parameters of one type, all or none with masters
  View random = {};              // present where parameters are rounded stochastically
  View schedule = {}, clip = {};
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;

  Cost cost() const { return cost_of_update(*this, /*update_flops=*/12); }
  void check_arguments() const {
    check_weights(*this, /*scheduled=*/3);
    for (const Entry& t : tensors) {
      check(t.m && t.v, "adamw: a parameter has no m, or no v");
      Arguments(name).apart("m", t.m, {{"v", t.v}});
    }
  }
};

void run(const AdamW&, CpuStream&);
void run(const AdamW&, CudaStream&);

}  // namespace spool
