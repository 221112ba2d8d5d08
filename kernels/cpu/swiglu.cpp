#include "spool/kernels/swiglu.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/functions.h"

namespace spool {
namespace {

template <class T>
void swiglu_row(const T* gate, const T* up, T* y, int64_t I) {
  using A = cpu::accumulator_t<T>;
  cpu::put_all(I, cpu::Sink<T, false>{y}, [=](int64_t i) {
    const A g = A(gate[i]);
    return g * math::sigmoid(g) * A(up[i]);
  });
}

template <class T, class Out>
void swiglu_backward_row(const T* dy, const T* gate, const T* up, int64_t I, const Out& dgate) {
  using A = cpu::accumulator_t<T>;
  cpu::put_all(I, cpu::TwoSinks<Out>{dgate, dgate.at(I)}, [=](int64_t i) {
    const A g = A(gate[i]), s = math::sigmoid(g), d = A(dy[i]);
    return cpu::Two<A>{d * A(up[i]) * s * (1 + g * (1 - s)), d * g * s};
  });
}

}  // namespace

void run(const SwigluForward& k, CpuStream& stream) {
  const int64_t N = k.y.shape().rows(), I = k.y.shape().row();
  cpu::dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    stream.parallel_for(N, cpu::piece_rows(2 * I), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* const x = k.x.as<T>() + 2 * n * I;
        swiglu_row(x, x + I, k.y.as<T>() + n * I, I);
      }
    });
  });
}

void run(const SwigluBackward& k, CpuStream& stream) {
  const int64_t N = k.dy.shape().rows(), I = k.dy.shape().row();
  cpu::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
      stream.parallel_for(N, cpu::piece_rows(2 * I), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const T* const x = k.x.as<T>() + 2 * n * I;
          swiglu_backward_row(k.dy.as<T>() + n * I, x, x + I, I, dx.at(2 * n * I));
        }
      });
    });
  });
}

}  // namespace spool
