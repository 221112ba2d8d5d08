#pragma once

// The rows of cross entropy on the cpu, whole ones (cross_entropy.cpp) and in parts
// (cross_entropy_part.cpp).

#include <algorithm>
#include <cmath>
#include <limits>

#include "spool/kernels/cpu/bf16_vectors.h"
#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cross_entropy.h"

namespace spool::cpu {

// The options, in the accumulator type.
template <class A>
struct EntropyOptions {
  A smoothing, z_loss, cap, inverse_cap;

  explicit EntropyOptions(const CrossEntropyOptions& o)
      : smoothing(static_cast<A>(o.label_smoothing)),
        z_loss(static_cast<A>(o.z_loss)),
        cap(static_cast<A>(o.soft_cap)),
        inverse_cap(1 / static_cast<A>(o.soft_cap)) {}
};

// Rows of bf16, in vectors: the largest of them; the sum of exp(z - maximum); and
//   z = exp(z - maximum) factor - spread
constexpr uint32_t two_lowest = 0xff80ff80;  // of -infinity

inline float largest_of(const bf16* z, int64_t V) {
  constexpr int64_t four = 4 * Halves::size;
  const auto larger = [](Floats a, Floats b) SPOOL_INLINE { return a > b ? a : b; };
  Floats all[4];
  for (Floats& some : all) some = splat(-std::numeric_limits<float>::infinity());
  const auto take = [&](int i, const Halves& v)
                        SPOOL_INLINE { all[i] = larger(all[i], larger(v.even, v.odd)); };
  int64_t at = 0;
  for (; at + four <= V; at += four) {
    unrolled<4>([&](int i) SPOOL_INLINE { take(i, Span<true>().load(z + at + i * Halves::size)); });
  }
  for_spans(V - at,
            [&](int64_t v, auto span) SPOOL_INLINE { take(0, span.load(z + at + v, two_lowest)); });
  return fold_lanes(larger(larger(all[0], all[1]), larger(all[2], all[3])), larger);
}

inline float sum_of_exponentials(const bf16* z, int64_t V, float maximum) {
  Floats even = {}, odd = {};
  for_spans(V, [&](int64_t v, auto span) SPOOL_INLINE {
    const Halves at = span.load(z + v, two_lowest);
    even += exp_of_negative(at.even - maximum);
    odd += exp_of_negative(at.odd - maximum);
  });
  return sum_of(even + odd);
}

inline void scale_exponentials(bf16* z, int64_t V, float maximum, float factor, float spread) {
  const float by = plain_nan(factor), less = plain_nan(spread);
  if (std::isnan(by) || std::isnan(less)) return void(std::fill_n(z, V, bf16(by - less)));
  for_spans(V, [=](int64_t v, auto span) SPOOL_INLINE {
    const auto slope = [=](Floats at)
                           SPOOL_INLINE { return exp_of_negative(at - maximum) * by - less; };
    span.store(z + v, each(slope, span.load(z + v)));
  });
}

// One row of logits, all of them or a part.
template <class T, bool capped, bool part>
struct LogitsRow {
  using A = accumulator_t<T>;
  // Exponentials may replace the logits if they are not rounded and z is not needed later.
  static constexpr bool keeps = !part && !capped && !std::is_same_v<T, bf16>;
  static constexpr bool in_vectors = !capped && std::is_same_v<T, bf16>;

  T* logits;
  int64_t used, V;  // how many of these count, and of the whole row
  EntropyOptions<A> options;
  // Set by sum_up() or join(): max z, z of the target, sum exp(z - max), sum z.
  A maximum = 0, target = 0, sum = 0, total = 0;

  A squashed(int64_t v) const { return tanh(A(logits[v]) * options.inverse_cap); }
  A z(int64_t v) const {
    if constexpr (capped) return options.cap * squashed(v);
    return A(logits[v]);
  }
  // In a part whose logits are all -infinity each exp(z - maximum) is to be 0.
  static A finite(A x) { return part ? std::max(x, std::numeric_limits<A>::lowest()) : x; }
  A log_sum() const { return maximum + std::log(sum); }

  // y is the column of the target; in a part also -1, if it is another part's.
  void sum_up(int64_t y, bool keep);
  void join(const A* statistics, int64_t parts, int64_t stride);
  A loss() const;
  void differentiate(int64_t y, A g);
};

template <class T, bool capped, bool part>
void LogitsRow<T, capped, part>::sum_up(int64_t y, bool keep) {
  const T* x = logits;
  target = part && y < 0 ? 0 : z(y);
  if constexpr (in_vectors) {
    maximum = finite(largest_of(x, used));
    if (options.smoothing != 0) total = cpu::sum<A>(used, [=](int64_t v) { return A(x[v]); });
    sum = sum_of_exponentials(x, used, maximum);
    return;
  }
  maximum = finite(largest<A>(used, [=](int64_t v) { return A(x[v]); }));
  if constexpr (capped) maximum = options.cap * tanh(maximum * options.inverse_cap);
  const LogitsRow row = *this;
  if (options.smoothing != 0) total = cpu::sum<A>(used, [=](int64_t v) { return row.z(v); });
  if constexpr (keeps) {
    if (keep) {
      sum = cpu::sum<A>(
          used, [=](int64_t v) { return row.logits[v] = exp(row.logits[v] - row.maximum); });
      return;
    }
  }
  sum = cpu::sum<A>(used, [=](int64_t v) { return exp(row.z(v) - row.maximum); });
}

// Adds up the statistics of all parts, `stride` numbers from one to the next.
template <class T, bool capped, bool part>
void LogitsRow<T, capped, part>::join(const A* statistics, int64_t parts, int64_t stride) {
  maximum = std::numeric_limits<A>::lowest();
  sum = target = total = 0;
  for (int64_t p = 0; p < parts; ++p) maximum = std::max(maximum, statistics[p * stride]);
  for (int64_t p = 0; p < parts; ++p) {
    const A* of_part = statistics + p * stride;
    sum += of_part[1] * std::exp(of_part[0] - maximum);
    target += of_part[2];
    if (options.smoothing != 0) total += of_part[3];
  }
}

template <class T, bool capped, bool part>
accumulator_t<T> LogitsRow<T, capped, part>::loss() const {
  const A e = options.smoothing, lse = log_sum();
  // lse - z[y], without the digits that lse loses to the maximum
  const A to_target = std::log(sum) - (target - maximum);
  const A to_mean = e != 0 ? lse - total / static_cast<A>(V) : A{0};
  return (1 - e) * to_target + e * to_mean + options.z_loss * lse * lse;
}

template <class T, bool capped, bool part>
void LogitsRow<T, capped, part>::differentiate(int64_t y, A g) {
  const A e = options.smoothing, one = (1 - e) * g, spread = e / static_cast<A>(V) * g;
  const A factor = g * (1 + 2 * options.z_loss * log_sum()) / sum;
  const LogitsRow row = *this;
  const auto exponential = [=](int64_t v) {
    if constexpr (keeps) return row.logits[v];
    return exp(row.z(v) - row.maximum);
  };
  const auto slope = [=](int64_t v) {
    if constexpr (!capped) return A{1};
    const A t = row.squashed(v);
    return 1 - t * t;
  };
  const bool here = !part || y >= 0;
  const A at_target = here ? (exponential(y) * factor - one - spread) * slope(y) : 0;
  if constexpr (in_vectors) {
    scale_exponentials(logits, used, maximum, factor, spread);
  } else {
    put_all(used, Sink<T, false>{logits},
            [=](int64_t v) { return (exponential(v) * factor - spread) * slope(v); });
  }
  if (here) logits[y] = static_cast<T>(at_target);
}

// Whether a row has a loss.  Throws if its target is none.
inline bool has_loss(const char* kernel, const CrossEntropyOptions& o, int32_t target, int64_t n,
                     int64_t V) {
  const bool ignored = target == o.ignore_index;
  check(ignored || (target >= 0 && target < V), kernel, ": target ", target, " at position ", n,
        " is not in [0, ", V, "), the vocabulary, and is not the ignored index ", o.ignore_index);
  return !ignored;
}

// What the gradient of row n is multiplied by.
template <class A, class Kernel>
A gradient_factor(const Kernel& k, int64_t n) {
  const A scale = k.scale ? *k.scale.template as<A>() : A{1};
  const A upstream =
      k.upstream ? k.upstream.template as<A>()[k.upstream.numel() > 1 ? n : 0] : A{1};
  return scale * (upstream - static_cast<A>(k.upstream_known));
}

// Calls f(n, T{}, capped) for each row, where T is the type of its logits, and `capped` a constant
// that says whether these have a soft cap.
template <class Kernel, class F>
void for_rows(const Kernel& k, CpuStream& stream, const F& f) {
  const int64_t N = k.targets.numel(), columns = k.logits.shape().row();
  dispatch(k.logits.dtype(), [&](auto scalar) {
    stream.parallel_for(N, piece_rows(columns), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if (k.options.soft_cap > 0) {
          f(n, scalar, std::true_type{});
        } else {
          f(n, scalar, std::false_type{});
        }
      }
    });
  });
}

}  // namespace spool::cpu
