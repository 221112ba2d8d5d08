#include "spool/kernels/adamw.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// What is the same for all elements.
struct Step {
  float beta1, beta2, eps, decay, rate, inverse1, inverse2, factor;

  explicit Step(const AdamW& k)
      : beta1(k.beta1),
        beta2(k.beta2),
        eps(k.eps),
        decay(k.decay),
        rate(k.schedule.as<float>()[0]),
        inverse1(1 / k.schedule.as<float>()[1]),
        inverse2(1 / k.schedule.as<float>()[2]),
        factor(k.clip.as<float>()[0]) {}
};

template <class P, class G>
void update(const AdamW& k, int64_t begin, int64_t end) {
  const Step s(k);
  const auto parameter = cpu::plain<P>(k.parameter);
  auto* w = k.master ? k.master.as<float>() : k.parameter.as<float>();
  auto *m = k.m.as<float>(), *v = k.v.as<float>();
  const G* grad = k.grad.as<G>();
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float g = s.factor * static_cast<float>(grad[i]);
    const float first = s.beta1 * m[i] + (1 - s.beta1) * g;
    const float second = s.beta2 * v[i] + (1 - s.beta2) * g * g;
    const float direction = first * s.inverse1 / (std::sqrt(second * s.inverse2) + s.eps);
    const float updated = w[i] - s.rate * (direction + s.decay * w[i]);
    m[i] = first;
    v[i] = second;
    w[i] = updated;
    if constexpr (dtype_of<P>() == DType::bf16) parameter.put(i, updated);
  }
}

}  // namespace

void run(const AdamW& k, CpuStream& stream) {
  const DType type = k.parameter.dtype();
  check(type == (k.master ? DType::bf16 : DType::f32), "adamw: a parameter of ", name(type),
        k.master ? " with" : " without", " a master; f32 has none, bf16 has one");
  const bool finite = k.clip.as<float>()[2] != 0;
  if (!finite) return;
  cpu::dispatch(type, [&](auto scalar) {
    using P = decltype(scalar);
    cpu::dispatch_gradient<P>(k.grad.dtype(), [&](auto gradient) {
      stream.parallel_for(k.m.numel(), cpu::piece_elements, [&](int64_t begin, int64_t end) {
        update<P, decltype(gradient)>(k, begin, end);
      });
    });
  });
}

void run(const ClipFactor& k, CpuStream&) {
  const double norm = std::sqrt(*k.squared.as<double>());
  auto* clip = k.clip.as<float>();
  clip[0] = k.limit > 0 && norm > k.limit ? static_cast<float>(k.limit / norm) : 1.0f;
  clip[1] = static_cast<float>(norm);
  clip[2] = std::isfinite(norm) ? 1.0f : 0.0f;
}

}  // namespace spool
