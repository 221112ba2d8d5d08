#include "spool/kernels/squared_error.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {

void run(const SquaredErrorForward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T *x = k.x.as<T>() + n * C, *y = k.y.as<T>() + n * C;
        const A sum = cpu::sum<A>(C, [=](int64_t c) {
          const A difference = A(x[c]) - A(y[c]);
          return difference * difference;
        });
        k.losses.as<A>()[n] = sum / static_cast<A>(C);
      }
    });
  });
}

void run(const SquaredErrorBackward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  const bool each = k.upstream.numel() != 1;
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    const A scale = k.scale ? *k.scale.as<A>() : A{1};
    // One argument after the other, as a difference of opposite sign.
    const auto differentiate = [&](const Grad& gradient, const View& from, const View& to) {
      if (!gradient) return;
      cpu::dispatch_sink<T>(gradient, [&](auto out) {
        stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) {
            const T *x = from.as<T>() + n * C, *y = to.as<T>() + n * C;
            const A upstream = scale * k.upstream.as<A>()[each ? n : 0];
            const A g = static_cast<A>(2 * k.factor) / static_cast<A>(C) * upstream;
            cpu::put_all(C, out.at(n * C), [=](int64_t c) { return g * (A(x[c]) - A(y[c])); });
          }
        });
      });
    };
    differentiate(k.dx, k.x, k.y);
    differentiate(k.dy, k.y, k.x);
  });
}

}  // namespace spool
