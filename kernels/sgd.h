#pragma once

// Stochastic gradient descent with momentum for many tensors at once, as torch.optim.SGD of PyTorch
// computes it (with dampening 0), with the gradients clipped:
//   g = clip[0] * grad + decay w          b = momentum b + g
//   w = w - lr rate (nesterov ? g + momentum b : b)
//   schedule  f32 (1): lr
// b is the entry's `momentum`, which begins at zero; where it is absent, w = w - lr rate g.
// For w, clip, rounding, slices and what may overlap, see weights.h.

#include <array>

#include "spool/kernels/weights.h"

namespace spool {

struct Sgd {
  static constexpr const char* name = "sgd";
  static constexpr int64_t granule = weights_granule;
  struct Entry {
    View parameter;      // f32, or bf16
    View master = {};    // f32; absent where the parameter is f32, or rounded stochastically
    View momentum = {};  // f32
    View grad;           // type of the parameter, or f32
    float rate = 1, decay = 0;
    uint32_t index = 0;
    int64_t first = 0;  // a multiple of `granule`
    std::array<View, 1> state() const { return {momentum}; }
  };
  List<Entry, 60> tensors = {};  // parameters of one type; all or none with masters, with momentum
  View random = {};              // present where parameters are rounded stochastically
  View schedule = {}, clip = {};
  float momentum = 0;
  bool nesterov = false;

  Cost cost() const { return cost_of_update(*this, /*update_flops=*/8); }
  void check_arguments() const {
    check_weights(*this, /*scheduled=*/1);
    for (const Entry& t : tensors) {
      check(bool(t.momentum) == (momentum != 0), "sgd: with a momentum of ", momentum,
            " a parameter must have ", momentum != 0 ? "a" : "no", " momentum buffer");
    }
  }
};

void run(const Sgd&, CpuStream&);
void run(const Sgd&, CudaStream&);

}  // namespace spool
