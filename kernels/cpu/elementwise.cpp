#include "spool/kernels/elementwise.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/nearest.h"

namespace spool {

void run(const Fill& k, CpuStream& stream) {
  cpu::dispatch(k.out.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const auto value = static_cast<T>(k.value);
    cpu::map(stream, k.out.numel(), cpu::plain<T>(k.out), [=](int64_t) { return value; });
  });
}

void run(const Add& k, CpuStream& stream) {
  cpu::dispatch(k.a.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    const T *a = k.a.as<T>(), *b = k.b.as<T>();
    cpu::dispatch_sink<T>(k.out, [&](auto out) {
      const int64_t n = k.a.numel();
      if (!b) return cpu::map(stream, n, out, [=](int64_t i) { return a[i]; });
      cpu::map(stream, n, out, [=](int64_t i) { return A(a[i]) + A(b[i]); });
    });
  });
}

void run(const Scale& k, CpuStream& stream) {
  cpu::dispatch(k.a.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    const T* a = k.a.as<T>();
    const A factor = static_cast<A>(k.factor) * (k.by ? *k.by.as<A>() : A{1});
    cpu::dispatch_sink<T>(k.out, [&](auto out) {
      cpu::map(stream, k.a.numel(), out, [=](int64_t i) { return factor * A(a[i]); });
    });
  });
}

void run(const Cast& k, CpuStream& stream) {
  cpu::dispatch_stored(k.in.dtype(), [&](auto from) {
    using T = decltype(from);
    using A = cpu::accumulator_t<T>;
    const T* in = k.in.as<T>();
    cpu::dispatch_stored(k.out.dtype(), [&](auto to) {
      using Out = decltype(to);
      const auto out = cpu::plain<Out>(k.out);
      const int64_t n = k.in.numel();
      if constexpr (std::is_same_v<Out, int8_t>) {
        cpu::map(stream, n, out, [=](int64_t i) { return cpu::nearest_i8(A(in[i])); });
      } else {
        cpu::map(stream, n, out, [=](int64_t i) { return A(in[i]); });
      }
    });
  });
}

}  // namespace spool
