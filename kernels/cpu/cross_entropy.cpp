#include "spool/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "spool/kernels/cpu/bf16_vectors.h"
#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// The options, in the accumulator type.
template <class A>
struct Options {
  A smoothing, z_loss, cap, inverse_cap;

  explicit Options(const CrossEntropyOptions& o)
      : smoothing(static_cast<A>(o.label_smoothing)),
        z_loss(static_cast<A>(o.z_loss)),
        cap(static_cast<A>(o.soft_cap)),
        inverse_cap(1 / static_cast<A>(o.soft_cap)) {}
};

// Rows of bf16, in vectors: the largest of them; the sum of exp(z - maximum); and
//   z = exp(z - maximum) factor - spread
constexpr uint32_t lowest = 0xff80ff80;  // two of -infinity

float largest_of(const bf16* z, int64_t V) {
  constexpr int64_t four = 4 * cpu::Halves::size;
  const auto larger = [](cpu::Floats a, cpu::Floats b) SPOOL_INLINE { return a > b ? a : b; };
  cpu::Floats all[4];
  for (cpu::Floats& some : all) some = cpu::splat(-std::numeric_limits<float>::infinity());
  const auto take = [&](int i, const cpu::Halves& v)
                        SPOOL_INLINE { all[i] = larger(all[i], larger(v.even, v.odd)); };
  int64_t at = 0;
  for (; at + four <= V; at += four) {
    cpu::unrolled<4>([&](int i) SPOOL_INLINE {
      take(i, cpu::Span<true>().load(z + at + i * cpu::Halves::size));
    });
  }
  cpu::for_spans(
      V - at, [&](int64_t v, auto span) SPOOL_INLINE { take(0, span.load(z + at + v, lowest)); });
  return cpu::fold_lanes(larger(larger(all[0], all[1]), larger(all[2], all[3])), larger);
}

float sum_of_exponentials(const bf16* z, int64_t V, float maximum) {
  cpu::Floats even = {}, odd = {};
  cpu::for_spans(V, [&](int64_t v, auto span) SPOOL_INLINE {
    const cpu::Halves at = span.load(z + v, lowest);
    even += cpu::exp_of_negative(at.even - maximum);
    odd += cpu::exp_of_negative(at.odd - maximum);
  });
  return cpu::sum_of(even + odd);
}

void scale_exponentials(bf16* z, int64_t V, float maximum, float factor, float spread) {
  const float by = cpu::plain_nan(factor), less = cpu::plain_nan(spread);
  if (std::isnan(by) || std::isnan(less)) return void(std::fill_n(z, V, bf16(by - less)));
  cpu::for_spans(V, [=](int64_t v, auto span) SPOOL_INLINE {
    const auto slope = [=](cpu::Floats at)
                           SPOOL_INLINE { return cpu::exp_of_negative(at - maximum) * by - less; };
    span.store(z + v, cpu::each(slope, span.load(z + v)));
  });
}

// One row of V logits.
template <class T, bool capped>
struct LogitsRow {
  using A = cpu::accumulator_t<T>;
  // Exponentials may replace the logits if they are not rounded and z is not needed later.
  static constexpr bool keeps = !capped && !std::is_same_v<T, bf16>;
  static constexpr bool in_vectors = !capped && std::is_same_v<T, bf16>;

  T* logits;
  int64_t V;
  Options<A> options;
  // Set by sum_up(): max z, z of the target, sum exp(z - max), sum z.
  A maximum = 0, target = 0, sum = 0, total = 0;

  A squashed(int64_t v) const { return cpu::tanh(A(logits[v]) * options.inverse_cap); }
  A z(int64_t v) const {
    if constexpr (capped) return options.cap * squashed(v);
    return A(logits[v]);
  }
  A log_sum() const { return maximum + std::log(sum); }

  void sum_up(int64_t y, bool keep);
  A loss() const;
  void differentiate(int64_t y, A g);
};

template <class T, bool capped>
void LogitsRow<T, capped>::sum_up(int64_t y, bool keep) {
  const T* x = logits;
  target = z(y);
  if constexpr (in_vectors) {
    maximum = largest_of(x, V);
    if (options.smoothing != 0) total = cpu::sum<A>(V, [=](int64_t v) { return A(x[v]); });
    sum = sum_of_exponentials(x, V, maximum);
    return;
  }
  maximum = cpu::largest<A>(V, [=](int64_t v) { return A(x[v]); });
  if constexpr (capped) maximum = options.cap * cpu::tanh(maximum * options.inverse_cap);
  const LogitsRow row = *this;
  if (options.smoothing != 0) total = cpu::sum<A>(V, [=](int64_t v) { return row.z(v); });
  if constexpr (keeps) {
    if (keep) {
      sum = cpu::sum<A>(
          V, [=](int64_t v) { return row.logits[v] = cpu::exp(row.logits[v] - row.maximum); });
      return;
    }
  }
  sum = cpu::sum<A>(V, [=](int64_t v) { return cpu::exp(row.z(v) - row.maximum); });
}

template <class T, bool capped>
cpu::accumulator_t<T> LogitsRow<T, capped>::loss() const {
  const A e = options.smoothing, lse = log_sum();
  // lse - z[y], without the digits that lse loses to the maximum
  const A to_target = std::log(sum) - (target - maximum);
  const A to_mean = e != 0 ? lse - total / static_cast<A>(V) : A{0};
  return (1 - e) * to_target + e * to_mean + options.z_loss * lse * lse;
}

template <class T, bool capped>
void LogitsRow<T, capped>::differentiate(int64_t y, A g) {
  const A e = options.smoothing, one = (1 - e) * g, spread = e / static_cast<A>(V) * g;
  const A factor = g * (1 + 2 * options.z_loss * log_sum()) / sum;
  const LogitsRow row = *this;
  const auto exponential = [=](int64_t v) {
    if constexpr (keeps) return row.logits[v];
    return cpu::exp(row.z(v) - row.maximum);
  };
  const auto slope = [=](int64_t v) {
    if constexpr (!capped) return A{1};
    const A t = row.squashed(v);
    return 1 - t * t;
  };
  const A at_target = (exponential(y) * factor - one - spread) * slope(y);
  if constexpr (in_vectors) {
    scale_exponentials(logits, V, maximum, factor, spread);
  } else {
    cpu::put_all(V, cpu::Sink<T, false>{logits},
                 [=](int64_t v) { return (exponential(v) * factor - spread) * slope(v); });
  }
  logits[y] = static_cast<T>(at_target);
}

template <class T, bool capped>
void cross_entropy(const CrossEntropy& k, int64_t n, int64_t columns, int64_t V) {
  using A = cpu::accumulator_t<T>;
  T* logits = k.logits.as<T>() + n * columns;
  const int32_t y = k.targets.as<int32_t>()[n];
  const bool ignored = y == k.options.ignore_index;
  check(ignored || (y >= 0 && y < V), "cross_entropy: target ", y, " at position ", n,
        " is not in [0, ", V, "), the vocabulary, and is not the ignored index ",
        k.options.ignore_index);
  const A scale = k.scale ? *k.scale.as<A>() : A{1};
  const A upstream = k.upstream ? k.upstream.as<A>()[k.upstream.numel() > 1 ? n : 0] : A{1};
  const A g = scale * (upstream - static_cast<A>(k.upstream_known));
  const bool differentiate = k.gradient && !ignored && g != 0;

  LogitsRow<T, capped> row{logits, V, Options<A>(k.options)};
  if (!ignored && (k.losses || differentiate)) row.sum_up(y, differentiate);
  if (k.losses) k.losses.as<A>()[n] = ignored ? A{0} : row.loss();
  if (differentiate) row.differentiate(y, g);
  if (k.gradient) std::fill(logits + (differentiate ? V : 0), logits + columns, T(0));
}

}  // namespace

void run(const CrossEntropy& k, CpuStream& stream) {
  const int64_t N = k.targets.numel(), columns = k.logits.shape().row();
  const int64_t V = k.vocabulary();
  cpu::dispatch(k.logits.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    stream.parallel_for(N, cpu::piece_rows(columns), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if (k.options.soft_cap > 0) {
          cross_entropy<T, true>(k, n, columns, V);
        } else {
          cross_entropy<T, false>(k, n, columns, V);
        }
      }
    });
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
