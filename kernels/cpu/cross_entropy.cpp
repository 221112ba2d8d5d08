#include "spool/kernels/cross_entropy.h"

#include "spool/kernels/cpu/cross_entropy_rows.h"

namespace spool {
namespace {

template <class T, bool capped>
void cross_entropy(const CrossEntropy& k, int64_t n, int64_t V) {
  using A = cpu::accumulator_t<T>;
  const int64_t columns = k.logits.shape().row();
  T* logits = k.logits.as<T>() + n * columns;
  const int32_t y = k.targets.as<int32_t>()[n];
  const bool counts = cpu::has_loss(k.name, k.options, y, n, V);
  const A g = cpu::gradient_factor<A>(k, n);
  const bool differentiate = k.gradient && counts && g != 0;

  cpu::LogitsRow<T, capped, /*part=*/false> row{logits, V, V, cpu::EntropyOptions<A>(k.options)};
  if (counts && (k.losses || differentiate)) row.sum_up(y, differentiate);
  if (k.losses) k.losses.as<A>()[n] = counts ? row.loss() : A{0};
  if (differentiate) row.differentiate(y, g);
  if (k.gradient) std::fill(logits + (differentiate ? V : 0), logits + columns, T(0));
}

}  // namespace

void run(const CrossEntropy& k, CpuStream& stream) {
  const int64_t V = k.vocabulary();
  cpu::for_rows(k, stream, [&](int64_t n, auto scalar, auto capped) {
    cross_entropy<decltype(scalar), decltype(capped)::value>(k, n, V);
  });
}

void run(const CountTargets& k, CpuStream&) {
  const int32_t* targets = k.targets.as<int32_t>();
  const int32_t ignored = k.ignore_index;
  const auto count = cpu::sum<int64_t>(k.targets.numel(),
                                       [=](int64_t n) { return int64_t{targets[n] != ignored}; });
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(1, count));
  cpu::dispatch(k.scale.dtype(),
                [&](auto scalar) { cpu::plain<decltype(scalar)>(k.scale).put(0, scale); });
}

}  // namespace spool
