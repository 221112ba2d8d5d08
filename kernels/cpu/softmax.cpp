#include "spool/kernels/softmax.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

template <class T>
void softmax(T* y, const T* x, int64_t C) {
  using A = cpu::accumulator_t<T>;
  const A largest = cpu::largest<A>(C, [=](int64_t c) { return A(x[c]); });
  const auto exponential = [=](int64_t c) { return cpu::exp(A(x[c]) - largest); };
  // If y does not round the exponentials, it stores them, so they are not computed twice.
  constexpr bool keeps = std::is_same_v<T, A>;
  const A sum = cpu::sum<A>(C, [=](int64_t c) {
    const A e = exponential(c);
    if constexpr (keeps) y[c] = e;
    return e;
  });
  const A inverse = 1 / sum;
  cpu::put_all(C, cpu::Sink<T, false>{y}, [=](int64_t c) {
    if constexpr (keeps) return y[c] * inverse;
    return exponential(c) * inverse;
  });
}

template <class T, class Out>
void differentiate(const Out& dx, const T* dy, const T* y, int64_t C) {
  using A = cpu::accumulator_t<T>;
  const A mean = cpu::sum<A>(C, [=](int64_t c) { return A(dy[c]) * A(y[c]); });
  cpu::put_all(C, dx, [=](int64_t c) { return A(y[c]) * (A(dy[c]) - mean); });
}

// Calls f for the place of each row of C elements.
template <class F>
void for_each_row(CpuStream& stream, const Shape& shape, const F& f) {
  const int64_t C = shape.row();
  stream.parallel_for(shape.rows(), cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n * C);
  });
}

}  // namespace

void run(const SoftmaxForward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    for_each_row(stream, k.x.shape(), [&](int64_t at) {
      softmax(k.y.as<T>() + at, k.x.as<const T>() + at, k.x.shape().row());
    });
  });
}

void run(const SoftmaxBackward& k, CpuStream& stream) {
  cpu::dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
      for_each_row(stream, k.y.shape(), [&](int64_t at) {
        differentiate(dx.at(at), k.dy.as<const T>() + at, k.y.as<const T>() + at,
                      k.y.shape().row());
      });
    });
  });
}

}  // namespace spool
