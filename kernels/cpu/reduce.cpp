#include "spool/kernels/reduce.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

constexpr int64_t grain = 4 * cpu::piece_elements;

size_t partial_bytes(int64_t n) {
  return static_cast<size_t>((n + grain - 1) / grain) * sizeof(double);
}

// The sum of f(x[i]) over [begin, end).  Several sums side by side, or the latency of the addition
// would set the pace.
template <class T, class F>
double sum_piece(const T* x, int64_t begin, int64_t end, F f) {
  constexpr int64_t lanes = 32;
  double sums[lanes] = {};
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
#pragma omp simd
    for (int64_t j = 0; j < lanes; ++j) sums[j] += f(static_cast<double>(x[i + j]));
  }
  double total = 0;
  for (; i < end; ++i) total += f(static_cast<double>(x[i]));
  for (int64_t width = lanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return total + sums[0];
}

// Pieces of `grain` elements, added up in order.
template <class F>
double sum_all(CpuStream& stream, const View& x, const View& workspace, F f) {
  double total = 0;
  cpu::dispatch(x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    auto* partials = workspace.as<double>();
    stream.parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
      partials[begin / grain] = sum_piece(x.as<T>(), begin, end, f);
    });
    const int64_t pieces = (x.numel() + grain - 1) / grain;
    for (int64_t piece = 0; piece < pieces; ++piece) total += partials[piece];
  });
  return total;
}

// out[0] (+)= value, in f64, rounded once.
void put(const Grad& out, double value) {
  const auto to = [&](auto sink) { sink.put(0, value); };
  if (out.view.dtype() == DType::f32) return cpu::dispatch_sink<float>(out, to);
  cpu::dispatch_sink<double>(out, to);
}

}  // namespace

size_t SumAll::workspace_bytes(const Architecture&) const { return partial_bytes(x.numel()); }
size_t SquaredNorm::workspace_bytes(const Architecture&) const { return partial_bytes(x.numel()); }

void run(const SumAll& k, CpuStream& stream) {
  double factor = k.factor;
  if (k.by) factor *= k.by.dtype() == DType::f64 ? *k.by.as<double>() : *k.by.as<float>();
  put(k.out, factor * sum_all(stream, k.x, k.workspace, [](double x) { return x; }));
}

void run(const SquaredNorm& k, CpuStream& stream) {
  put(k.out, sum_all(stream, k.x, k.workspace, [](double x) { return x * x; }));
}

}  // namespace spool
