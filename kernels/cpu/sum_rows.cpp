#include "spool/kernels/sum_rows.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// Element i.
double number(const View& v, int64_t i) {
  if (v.dtype() == DType::f64) return v.as<double>()[i];
  if (v.dtype() == DType::f32) return v.as<float>()[i];
  return v.as<bf16>()[i];
}

}  // namespace

void run(const SumRows& k, CpuStream& stream) {
  const int64_t C = k.C;
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    const T* x = k.x.as<T>();
    const A factor = static_cast<A>(k.factor);
    cpu::dispatch_sink<T>(k.y, [&](auto y) {
      stream.parallel_for(k.y.view.numel(), cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const T* row = x + n * C;
          y.put(n, factor * cpu::sum<A>(C, [=](int64_t c) { return A(row[c]); }));
        }
      });
    });
  });
}

void run(const Spread& k, CpuStream& stream) {
  const int64_t elements = k.dx.view.numel();
  if (elements == 0) return;
  const int64_t each = elements / k.dy.numel();
  cpu::dispatch(k.dx.view.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
      stream.parallel_for(elements, cpu::piece_elements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t count = std::min(each - i % each, end - i);
          const A value = static_cast<A>(k.factor) * static_cast<A>(number(k.dy, i / each));
          cpu::put_all(count, dx.at(i), [=](int64_t) { return value; });
          i += count;
        }
      });
    });
  });
}

}  // namespace spool
