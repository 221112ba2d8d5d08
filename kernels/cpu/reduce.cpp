#include "spool/kernels/reduce.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

constexpr int64_t grain = 4 * cpu::piece_elements;

size_t partial_bytes(int64_t n) {
  return static_cast<size_t>((n + grain - 1) / grain) * sizeof(double);
}

// Pieces of `grain` elements, added up in order.
template <class F>
double sum_all(CpuStream& stream, const View& x, const View& workspace, F f) {
  double total = 0;
  cpu::dispatch(x.dtype(), [&](auto scalar) {
    auto* partials = workspace.as<double>();
    stream.parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
      const auto* piece = x.as<decltype(scalar)>() + begin;
      partials[begin / grain] = cpu::sum<double>(
          end - begin, [=](int64_t i) { return f(static_cast<double>(piece[i])); });
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

size_t SumAll::workspace_bytes(const CpuArchitecture&) const { return partial_bytes(x.numel()); }
size_t SquaredNorm::workspace_bytes(const CpuArchitecture&) const {
  return partial_bytes(x.numel());
}

void run(const SumAll& k, CpuStream& stream) {
  double factor = k.factor;
  if (k.by) factor *= k.by.dtype() == DType::f64 ? *k.by.as<double>() : *k.by.as<float>();
  put(k.out, factor * sum_all(stream, k.x, k.workspace, [](double x) { return x; }));
}

void run(const SquaredNorm& k, CpuStream& stream) {
  put(k.out, sum_all(stream, k.x, k.workspace, [](double x) { return x * x; }));
}

}  // namespace spool
