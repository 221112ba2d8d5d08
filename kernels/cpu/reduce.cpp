#include "spool/kernels/reduce.h"

#include <algorithm>
#include <array>

#include "spool/kernels/cpu/bf16_vectors.h"
#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/pieces.h"
#include "spool/kernels/reduce_sizes.h"

namespace spool {
namespace {

// The sum of f over elements of x, in f64.
template <class F>
double sum_range(const View& view, int64_t begin, int64_t end, F f) {
  double sum = 0;
  cpu::dispatch(view.dtype(), [&](auto scalar) {
    const auto* x = view.as<decltype(scalar)>() + begin;
    sum = cpu::sum<double>(end - begin, [=](int64_t i) { return f(static_cast<double>(x[i])); });
  });
  return sum;
}

// The sum of squares of bf16 values in vectors, in the order of cpu::sum<double>.
double sum_squares(const bf16* x, int64_t n) {
  using V = cpu::Vector<double>::type;
  constexpr int64_t lanes = cpu::fold_width<double>, step = cpu::Halves::size;
  constexpr int parts = lanes / step;
  V even[2 * parts] = {}, odd[2 * parts] = {};  // by halves of a vector of f32
  const auto add = [&](const bf16* from) SPOOL_INLINE {
    cpu::unrolled<parts>([&](int i) SPOOL_INLINE {
      const cpu::Halves part = cpu::Span<true>().load(from + i * step);
      cpu::add_squares(part.even, even[2 * i], even[2 * i + 1]);
      cpu::add_squares(part.odd, odd[2 * i], odd[2 * i + 1]);
    });
  };
  const int64_t whole = n - n % lanes;
  for (int64_t i = 0; i < whole; i += lanes) add(x + i);
  if (whole < n) {
    bf16 rest[lanes] = {};
    std::copy(x + whole, x + n, rest);
    add(rest);
  }
  V side[4 * parts];
  for (int i = 0; i < 2 * parts; ++i) {
    cpu::interleave<double>(even[i], odd[i]);
    side[2 * i] = even[i];
    side[2 * i + 1] = odd[i];
  }
  double all[lanes];
  static_assert(sizeof all == sizeof side);
  std::memcpy(&all, &side, sizeof all);
  return cpu::fold_lanes(all, [](double a, double b) { return a + b; });
}

double squared(const View& view, int64_t begin, int64_t end) {
  if (view.dtype() == DType::bf16) return sum_squares(view.as<bf16>() + begin, end - begin);
  return sum_range(view, begin, end, [](double x) { return x * x; });
}

double sum_in_order(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
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
  cpu::Pieces<1> pieces(cpu::sum_piece);
  pieces.add(k.x.numel());
  auto* partials = k.workspace.as<double>();
  pieces.for_each(stream, [&](size_t, int64_t begin, int64_t end, int64_t piece) {
    partials[piece] = sum_range(k.x, begin, end, [](double x) { return x; });
  });
  put(k.out, factor * sum_in_order(partials, pieces.total()));
}

void run(const SquaredNorm& k, CpuStream& stream) {
  cpu::Pieces<decltype(k.x)::capacity> pieces(cpu::sum_piece);
  std::array<int64_t, decltype(k.x)::capacity> first{};  // granules
  int64_t granules = 0;
  for (size_t i = 0; i < static_cast<size_t>(k.x.size()); ++i) {
    first[i] = granules;
    granules += ceil_div(k.x[i].numel(), norm_granule);
    pieces.add(k.x[i].numel());
  }
  static_assert(cpu::sum_piece % norm_granule == 0);
  pieces.for_each(stream, [&](size_t tensor, int64_t begin, int64_t end, int64_t) {
    double* out = k.out.as<double>() + first[tensor] + begin / norm_granule;
    for (int64_t at = begin; at < end; at += norm_granule) {
      *out++ = squared(k.x[tensor], at, std::min(at + norm_granule, end));
    }
  });
}

void run(const SumGranules& k, CpuStream&) {
  const auto* granules = k.granules.as<double>();
  const int64_t n = k.granules.numel();
  double sum = 0;
  for (int64_t at = 0; at < n; at += granules_of_block) {
    sum += sum_in_order(granules + at, std::min(granules_of_block, n - at));
  }
  *k.out.as<double>() = sum;
}

}  // namespace spool
