#include "spool/kernels/gelu.h"

#include <numbers>

#include "spool/kernels/cpu/bf16_vectors.h"
#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// y = x cdf(x) and y' = cdf(x) + x density(x), where cdf is that of the normal distribution or an
// approximation.

// 1/2 (1 + tanh u) = 1 / (1 + e^-2u), which stays accurate where tanh u is close to -1.
template <class A>
struct Tanh {
  static constexpr A twice_root = A(1.5957691216057307);  // 2 sqrt(2/pi)
  static constexpr A cubic = A(0.044715);

  static A cdf(A x) { return 1 / (1 + cpu::exp(-twice_root * (x + cubic * x * x * x))); }
  static A density(A x, A cdf) { return cdf * (1 - cdf) * twice_root * (1 + 3 * cubic * x * x); }
};

// 1/2 erfc(u) for u >= 0, relative error 1e-6: Numerical Recipes, erfcc.
[[gnu::always_inline]] inline float half_erfc(float u) {
  const float t = 1 / (1 + 0.5f * u);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  return 0.5f * t * cpu::exp(p - u * u);
}
inline double half_erfc(double u) { return 0.5 * std::erfc(u); }

template <class A>
struct Exact {
  static A cdf(A x) {
    const A tail = half_erfc(std::fabs(x) * A(std::numbers::sqrt2 / 2));
    return x < 0 ? tail : 1 - tail;
  }
  static A density(A x, A) {
    return A(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * cpu::exp(A(-0.5) * x * x);
  }
};

// Tanh of bf16 values, in vectors.  Of the constants that are nearest to those of the formula these
// are some with which every bf16 x has the results of Tanh<float>, rounded to bf16.
struct TanhVectors {
  using V = cpu::Floats;

  static SPOOL_INLINE V cdf(V x) {
    const V power = x * (x * x * -0.102943234f - 2.30220842f);  // e^-2u is 2 to the power
    const V one = cpu::splat(1.0f), y = one / (one + cpu::power_of_two(cpu::at_least(-126, power)));
    return power < 128.0f ? y : V{};
  }
  static SPOOL_INLINE V value(V x) { return x * cdf(x); }
  static SPOOL_INLINE V slope(V x) {
    using Form = Tanh<float>;
    const V y = cdf(x), square = 3 * Form::cubic * x * x;
    return y + Form::twice_root * x * ((y - y * y) * (1.0f + square));
  }
};
template <class Form, class T>
constexpr bool in_vectors = std::is_same_v<Form, Tanh<float>>&& std::is_same_v<T, bf16>;

// y'(x)
template <class Form, class A>
[[gnu::always_inline]] inline A slope(A x) {
  const A cdf = Form::cdf(x);
  return cdf + x * Form::density(x, cdf);
}

void forward_in_vectors(const GeluForward& k, CpuStream& stream) {
  const bf16 *x = k.x.as<bf16>(), *bias = k.bias.as<bf16>();
  bf16* y = k.y.as<bf16>();
  if (!bias) {
    return stream.parallel_for(k.x.numel(), cpu::piece_elements, [=](int64_t begin, int64_t end) {
      cpu::for_spans(end - begin, [=](int64_t i, auto span) SPOOL_INLINE {
        span.store(y + begin + i, cpu::each(TanhVectors::value, span.load(x + begin + i)));
      });
    });
  }
  const int64_t C = k.x.shape().row();
  stream.parallel_for(k.x.shape().rows(), cpu::piece_rows(C), [=](int64_t begin, int64_t end) {
    for (int64_t at = begin * C; at < end * C; at += C) {
      cpu::for_spans(C, [=](int64_t c, auto span) SPOOL_INLINE {
        const auto value = [](cpu::Floats a, cpu::Floats b)
                               SPOOL_INLINE { return TanhVectors::value(a + b); };
        span.store(y + at + c, cpu::each(value, span.load(x + at + c), span.load(bias + c)));
      });
    }
  });
}

template <class Form, class T>
void forward(const GeluForward& k, CpuStream& stream) {
  if constexpr (in_vectors<Form, T>) return forward_in_vectors(k, stream);
  using A = cpu::accumulator_t<T>;
  const T* x = k.x.as<T>();
  const cpu::Sink<T, false> y = cpu::plain<T>(k.y);
  if (!k.bias) {
    return cpu::map(stream, k.x.numel(), y,
                    [=](int64_t i) { return A(x[i]) * Form::cdf(A(x[i])); });
  }
  const T* bias = k.bias.as<T>();
  const int64_t C = k.x.shape().row();
  stream.parallel_for(k.x.shape().rows(), cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* row = x + n * C;
      cpu::put_all(C, y.at(n * C), [=](int64_t c) {
        const A at = A(row[c]) + A(bias[c]);
        return at * Form::cdf(at);
      });
    }
  });
}

// Backward with a bias, of some rows.
template <class Form, class T, class Dx>
struct BackwardRows {
  using A = cpu::accumulator_t<T>;
  const T *x, *dy, *bias;
  Dx dx;  // to nowhere if absent
  int64_t C;

  static constexpr int64_t at_once = 512;  // columns, which stay in the cache

  // Adds to the sum of each column, if there is one.
  void run(int64_t begin, int64_t end, A* sum) const {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t c = 0; c < C; c += at_once) {
        part(n * C + c, c, std::min(at_once, C - c), sum);
      }
    }
  }
  void part(int64_t place, int64_t column, int64_t count, A* sum) const {
    A gradient[at_once];
    const T *from = x + place, *out = dy + place, *more = bias + column;
    cpu::put_all(count, cpu::Sink<A, false>{gradient},
                 [=](int64_t i) { return A(out[i]) * slope<Form>(A(from[i]) + A(more[i])); });
    const A* const all = gradient;
    if (dx.to) cpu::put_all(count, dx.at(place), [=](int64_t i) { return all[i]; });
    if (!sum) return;
    cpu::put_all(count, cpu::Sink<A, true>{sum + column}, [=](int64_t i) { return all[i]; });
  }
};

// The same in vectors, of four rows at a time, so that sums are read and written once for these.
template <class Dx>
struct VectorBackwardRows {
  const bf16 *x, *dy, *bias;
  Dx dx;
  int64_t C;

  void run(int64_t begin, int64_t end, float* sum) const {
    for (int64_t n = begin; n < end; n += 4) group(n, std::min(n + 4, end), sum);
  }
  void group(int64_t begin, int64_t end, float* sum) const {
    const VectorBackwardRows all = *this;
    cpu::for_spans(C, [=](int64_t c, auto span) SPOOL_INLINE {
      const cpu::Halves more = span.load(all.bias + c);
      cpu::Halves total;
      if (sum) total = span.load(sum + c);
      for (int64_t at = begin * all.C + c; at < end * all.C; at += all.C) {
        const cpu::Halves gradient =
            cpu::each([](cpu::Floats out, cpu::Floats from, cpu::Floats b)
                          SPOOL_INLINE { return cpu::unfused(out * TanhVectors::slope(from + b)); },
                      span.load(all.dy + at), span.load(all.x + at), more);
        if (all.dx.to) span.put(all.dx, at, gradient);
        total = {total.even + gradient.even, total.odd + gradient.odd};
      }
      if (sum) span.store(sum + c, total);
    });
  }
};

template <class Dx>
void backward_in_vectors(const GeluBackward& k, const Dx& dx, CpuStream& stream) {
  const bf16 *x = k.x.as<bf16>(), *dy = k.dy.as<bf16>();
  stream.parallel_for(k.x.numel(), cpu::piece_elements, [=](int64_t begin, int64_t end) {
    cpu::for_spans(end - begin, [=](int64_t i, auto span) SPOOL_INLINE {
      const auto gradient = [](cpu::Floats out, cpu::Floats from)
                                SPOOL_INLINE { return out * TanhVectors::slope(from); };
      const int64_t at = begin + i;
      span.put(dx, at, cpu::each(gradient, span.load(dy + at), span.load(x + at)));
    });
  });
}

template <class Form, class T, class Dx>
void backward_rows(const GeluBackward& k, const Dx& dx, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  using Rows =
      std::conditional_t<in_vectors<Form, T>, VectorBackwardRows<Dx>, BackwardRows<Form, T, Dx>>;
  const Rows all{.x = k.x.as<T>(), .dy = k.dy.as<T>(), .bias = k.bias.as<T>(), .dx = dx, .C = C};
  if (!k.dbias) {
    return stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      all.run(begin, end, /*sum=*/nullptr);
    });
  }
  const cpu::RowPieces pieces(N, C);
  A* const partials = k.workspace.as<A>();
  stream.parallel_for(N, pieces.rows, [&](int64_t begin, int64_t end) {
    A* const sum = partials + begin / pieces.rows * C;
    std::fill_n(sum, C, A{0});
    all.run(begin, end, sum);
  });
  cpu::dispatch_sink<T>(
      k.dbias, [&](auto dbias) { cpu::add_pieces(stream, partials, C, pieces.count, C, dbias); });
}

template <class Form, class T>
void backward(const GeluBackward& k, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  if (!k.dx) return backward_rows<Form, T>(k, cpu::Sink<T, false>{}, stream);
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  cpu::dispatch_sink<T>(k.dx, [&](auto dx) {
    if (k.bias) return backward_rows<Form, T>(k, dx, stream);
    if constexpr (in_vectors<Form, T>) return backward_in_vectors(k, dx, stream);
    cpu::map(stream, k.x.numel(), dx, [=](int64_t i) { return A(dy[i]) * slope<Form>(A(x[i])); });
  });
}

}  // namespace

void run(const GeluForward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    if (k.form == GeluForm::exact) return forward<Exact<A>, T>(k, stream);
    forward<Tanh<A>, T>(k, stream);
  });
}

void run(const GeluBackward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    if (k.form == GeluForm::exact) return backward<Exact<A>, T>(k, stream);
    backward<Tanh<A>, T>(k, stream);
  });
}

// Bytes of the sums of dbias over pieces, or groups, of rows.
size_t GeluBackward::workspace_bytes(const CpuArchitecture&) const {
  if (!dbias) return 0;
  const int64_t C = x.shape().row();
  const cpu::RowPieces pieces(x.shape().rows(), C);
  return static_cast<size_t>(pieces.count * C) * size_of(accumulator(x.dtype()));
}

}  // namespace spool
