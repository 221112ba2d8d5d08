#include "spool/kernels/sgd.h"

#include "spool/kernels/cuda/weights.cuh"

namespace spool {
namespace cuda {
namespace {

// Without a row of state there is no momentum.
template <int state_rows>
struct SgdRule {
  static constexpr int rows = state_rows, capacity = decltype(Sgd::tensors)::capacity;
  const float* schedule;
  float momentum;
  bool nesterov;

  struct Step {
    float momentum, rate, factor, decay;
    bool nesterov;

    __device__ Step(const SgdRule& rule, float clip_factor, float with_rate, float with_decay)
        : momentum(rule.momentum),
          rate(rule.schedule[0] * with_rate),
          factor(clip_factor),
          decay(with_decay),
          nesterov(rule.nesterov) {}

    __device__ __forceinline__ void take(float grad, float& w, weights::Quad (&state)[1],
                                         int k) const {
      const float g = factor * grad + decay * w;
      if constexpr (state_rows == 0) {
        w -= rate * g;
      } else {
        float& b = state[0].at[k];
        b = momentum * b + g;
        w -= rate * (nesterov ? g + momentum * b : b);
      }
    }
  };
};

}  // namespace
}  // namespace cuda

void run(const Sgd& k, CudaStream& stream) {
  const auto update = [&]<int rows>(cuda::SgdRule<rows> rule) {
    rule = {.schedule = k.schedule.as<float>(), .momentum = k.momentum, .nesterov = k.nesterov};
    cuda::weights::update(k, rule, stream);
  };
  if (k.momentum == 0) return update(cuda::SgdRule<0>{});
  update(cuda::SgdRule<1>{});
}

}  // namespace spool
