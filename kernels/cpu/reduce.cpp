#include "spool/kernels/reduce.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/pieces.h"
#include "spool/kernels/reduce_sizes.h"

namespace spool {
namespace {

using Views = std::span<const View>;
using Pieces = cpu::Pieces<decltype(SquaredNorm::x)::capacity>;

Pieces pieces_of(Views all) {
  Pieces pieces(cpu::sum_piece);
  for (const View& x : all) pieces.add(x.numel());
  return pieces;
}

// The sum of f over all elements, in f64; sums of pieces are added up in order.
template <class F>
double sum_all(CpuStream& stream, Views all, const View& workspace, F f) {
  const Pieces pieces = pieces_of(all);
  auto* partials = workspace.as<double>();
  pieces.for_each(stream, [&](size_t tensor, int64_t begin, int64_t end, int64_t piece) {
    const View& view = all[tensor];
    cpu::dispatch(view.dtype(), [&](auto scalar) {
      const auto* x = view.as<decltype(scalar)>() + begin;
      partials[piece] =
          cpu::sum<double>(end - begin, [=](int64_t i) { return f(static_cast<double>(x[i])); });
    });
  });
  double total = 0;
  for (int64_t piece = 0; piece < pieces.total(); ++piece) total += partials[piece];
  return total;
}

// out[0] (+)= value, in f64, rounded once.
void put(const Grad& out, double value) {
  const auto to = [&](auto sink) { sink.put(0, value); };
  if (out.view.dtype() == DType::f32) return cpu::dispatch_sink<float>(out, to);
  cpu::dispatch_sink<double>(out, to);
}

}  // namespace

void run(const SumAll& k, CpuStream& stream) {
  double factor = k.factor;
  if (k.by) factor *= k.by.dtype() == DType::f64 ? *k.by.as<double>() : *k.by.as<float>();
  put(k.out, factor * sum_all(stream, {&k.x, 1}, k.workspace, [](double x) { return x; }));
}

void run(const SquaredNorm& k, CpuStream& stream) {
  put(k.out, sum_all(stream, k.x, k.workspace, [](double x) { return x * x; }));
}

}  // namespace spool
