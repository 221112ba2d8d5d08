#include "spool/kernels/gelu.h"

#include <numbers>

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// y = x cdf(x) and y' = cdf(x) + x density(x), where cdf is that of the normal distribution or an
// approximation.

// 1/2 (1 + tanh u) = 1 / (1 + e^-2u), which stays accurate where tanh u is close to -1.
template <class A>
struct Tanh {
  static constexpr A twice_root = A(1.5957691216057307);  // 2 sqrt(2/pi)
  static constexpr A cubic = A(0.044715);

  static A cdf(A x) { return 1 / (1 + cpu::exp(-twice_root * (x + cubic * x * x * x))); }
  static A density(A x, A cdf) { return cdf * (1 - cdf) * twice_root * (1 + 3 * cubic * x * x); }
};

// 1/2 erfc(u) for u >= 0, relative error 1e-6: Numerical Recipes, erfcc.
[[gnu::always_inline]] inline float half_erfc(float u) {
  const float t = 1 / (1 + 0.5f * u);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  return 0.5f * t * cpu::exp(p - u * u);
}
inline double half_erfc(double u) { return 0.5 * std::erfc(u); }

template <class A>
struct Exact {
  static A cdf(A x) {
    const A tail = half_erfc(std::fabs(x) * A(std::numbers::sqrt2 / 2));
    return x < 0 ? tail : 1 - tail;
  }
  static A density(A x, A) {
    return A(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * cpu::exp(A(-0.5) * x * x);
  }
};

template <class Form, class T>
void forward(const GeluForward& k, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  const T* x = k.x.as<T>();
  cpu::map(stream, k.x.numel(), cpu::plain<T>(k.y),
           [=](int64_t i) { return A(x[i]) * Form::cdf(A(x[i])); });
}

template <class Form, class T>
void backward(const GeluBackward& k, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
    cpu::map(stream, k.x.numel(), dx, [=](int64_t i) {
      const A at = x[i], cdf = Form::cdf(at);
      return A(dy[i]) * (cdf + at * Form::density(at, cdf));
    });
  });
}

}  // namespace

void run(const GeluForward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    if (k.form == GeluForm::exact) return forward<Exact<A>, T>(k, stream);
    forward<Tanh<A>, T>(k, stream);
  });
}

void run(const GeluBackward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    if (k.form == GeluForm::exact) return backward<Exact<A>, T>(k, stream);
    backward<Tanh<A>, T>(k, stream);
  });
}

}  // namespace spool
