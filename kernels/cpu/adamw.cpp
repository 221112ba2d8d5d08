#include "spool/kernels/adamw.h"

#include "spool/kernels/cpu/weights.h"

namespace spool {
namespace {

struct AdamWRule {
  float beta1, beta2, eps, rate, inverse1, inverse2, factor, decay;
  float *m, *v;

  AdamWRule(const AdamW& k, const AdamW::Entry& t)
      : beta1(k.beta1),
        beta2(k.beta2),
        eps(k.eps),
        rate(k.schedule.as<float>()[0] * t.rate),
        inverse1(1 / k.schedule.as<float>()[1]),
        inverse2(1 / k.schedule.as<float>()[2]),
        factor(k.clip.as<float>()[0]),
        decay(t.decay),
        m(t.m.as<float>()),
        v(t.v.as<float>()) {}

  float take(int64_t i, float grad, float w) const {
    const float g = factor * grad;
    const float first = beta1 * m[i] + (1 - beta1) * g;
    const float second = beta2 * v[i] + (1 - beta2) * g * g;
    const float direction = first * inverse1 / (std::sqrt(second * inverse2) + eps);
    m[i] = first;
    v[i] = second;
    return w - rate * (direction + decay * w);
  }
};

}  // namespace

void run(const AdamW& k, CpuStream& stream) { cpu::update_weights<AdamWRule>(k, stream); }

}  // namespace spool
