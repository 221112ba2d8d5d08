#include "spool/kernels/adamw.h"

#include "spool/kernels/cuda/weights.cuh"

namespace spool {
namespace cuda {
namespace {

struct AdamWRule {
  static constexpr int rows = 2, capacity = decltype(AdamW::tensors)::capacity;
  const float* schedule;
  float beta1, beta2, eps;

  struct Step {
    float beta1, beta2, eps, rate, inverse1, inverse2, factor, decay;

    __device__ Step(const AdamWRule& rule, float clip_factor, float with_rate, float with_decay)
        : beta1(rule.beta1),
          beta2(rule.beta2),
          eps(rule.eps),
          rate(rule.schedule[0] * with_rate),
          inverse1(1 / rule.schedule[1]),
          inverse2(1 / rule.schedule[2]),
          factor(clip_factor),
          decay(with_decay) {}

    __device__ __forceinline__ void take(float grad, float& w, weights::Quad (&state)[2],
                                         int k) const {
      float &m = state[0].at[k], &v = state[1].at[k];
      const float g = factor * grad;
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      const float direction = __fdividef(m * inverse1, sqrtf(v * inverse2) + eps);
      w -= rate * (direction + decay * w);
    }
  };
};

}  // namespace
}  // namespace cuda

void run(const AdamW& k, CudaStream& stream) {
  const cuda::AdamWRule rule{
      .schedule = k.schedule.as<float>(), .beta1 = k.beta1, .beta2 = k.beta2, .eps = k.eps};
  cuda::weights::update(k, rule, stream);
}

}  // namespace spool
