#include "spool/kernels/sgd.h"

#include "spool/kernels/cpu/weights.h"

namespace spool {
namespace {

enum class SgdForm { plain, momentum, nesterov };

template <SgdForm form>
struct SgdRule {
  float momentum, rate, factor, decay;
  float* buffer;  // absent if plain

  SgdRule(const Sgd& k, const Sgd::Entry& t)
      : momentum(k.momentum),
        rate(k.schedule.as<float>()[0] * t.rate),
        factor(k.clip.as<float>()[0]),
        decay(t.decay),
        buffer(t.momentum.as<float>()) {}

  float take(int64_t i, float grad, float w) const {
    const float g = factor * grad + decay * w;
    if constexpr (form == SgdForm::plain) return w - rate * g;
    const float b = momentum * buffer[i] + g;
    buffer[i] = b;
    return w - rate * (form == SgdForm::nesterov ? g + momentum * b : b);
  }
};

}  // namespace

void run(const Sgd& k, CpuStream& stream) {
  if (k.momentum == 0) return cpu::update_weights<SgdRule<SgdForm::plain>>(k, stream);
  if (k.nesterov) return cpu::update_weights<SgdRule<SgdForm::nesterov>>(k, stream);
  cpu::update_weights<SgdRule<SgdForm::momentum>>(k, stream);
}

}  // namespace spool
