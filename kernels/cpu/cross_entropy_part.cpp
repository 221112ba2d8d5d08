#include "spool/kernels/cross_entropy_part.h"

#include "spool/kernels/cpu/cross_entropy_rows.h"

namespace spool {
namespace {

// The part's column of a target, or -1.
int64_t own_column(const PartOfLogits& part, int32_t target) {
  const int64_t y = target - part.first;
  return y >= 0 && y < part.used() ? y : -1;
}

template <class T, bool capped>
using PartOfRow = cpu::LogitsRow<T, capped, /*part=*/true>;

template <class T, bool capped>
void sum_up_part(const CrossEntropyStatistics& k, const PartOfLogits& part, int64_t n) {
  using A = cpu::accumulator_t<T>;
  const int32_t target = k.targets.as<int32_t>()[n];
  PartOfRow<T, capped> row{k.logits.as<T>() + n * part.columns, part.used(), part.vocabulary,
                           cpu::EntropyOptions<A>(k.options)};
  row.maximum = std::numeric_limits<A>::lowest();
  const bool summed = cpu::has_loss(k.name, k.options, target, n, part.vocabulary) && row.used > 0;
  if (summed) row.sum_up(own_column(part, target), /*keep=*/false);
  const A all[] = {row.maximum, row.sum, row.target, row.total};
  const int64_t numbers = k.numbers(k.options);
  std::copy_n(all, numbers, k.statistics.as<A>() + n * numbers);
}

template <class T, bool capped>
void join_parts(const CrossEntropyJoined& k, const PartOfLogits& part, int64_t n) {
  using A = cpu::accumulator_t<T>;
  const int32_t target = k.targets.as<int32_t>()[n];
  const bool counts = cpu::has_loss(k.name, k.options, target, n, part.vocabulary);
  const A g = cpu::gradient_factor<A>(k, n);
  const bool differentiate = k.gradient && counts && g != 0;
  const Shape& all = k.statistics.shape();
  T* logits = k.logits.as<T>() + n * part.columns;
  PartOfRow<T, capped> row{logits, part.used(), part.vocabulary, cpu::EntropyOptions<A>(k.options)};
  if (counts) row.join(k.statistics.as<A>() + n * all[2], all[0], all[1] * all[2]);
  if (k.losses) k.losses.as<A>()[n] = counts ? row.loss() : A{0};
  if (differentiate) row.differentiate(own_column(part, target), g);
  if (k.gradient) std::fill(logits + (differentiate ? row.used : 0), logits + part.columns, T(0));
}

}  // namespace

void run(const CrossEntropyStatistics& k, CpuStream& stream) {
  const PartOfLogits part = k.columns();
  cpu::for_rows(k, stream, [&](int64_t n, auto scalar, auto capped) {
    sum_up_part<decltype(scalar), decltype(capped)::value>(k, part, n);
  });
}

void run(const CrossEntropyJoined& k, CpuStream& stream) {
  const PartOfLogits part = k.columns();
  cpu::for_rows(k, stream, [&](int64_t n, auto scalar, auto capped) {
    join_parts<decltype(scalar), decltype(capped)::value>(k, part, n);
  });
}

}  // namespace spool
