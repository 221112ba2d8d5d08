#include "spool/kernels/layer_norm.h"

#include "spool/kernels/cpu/bf16_vectors.h"
#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

template <class T>
void normalise_row(const LayerNormForward& k, int64_t n, int64_t C) {
  using A = cpu::accumulator_t<T>;
  const T *x = k.x.as<T>() + n * C, *weight = k.weight.as<T>(), *bias = k.bias.as<T>();
  const A count = static_cast<A>(C);
  const A mean = cpu::sum<A>(C, [=](int64_t c) { return A(x[c]); }) / count;
  const A variance = cpu::sum<A>(C,
                                 [=](int64_t c) {
                                   const A centred = A(x[c]) - mean;
                                   return centred * centred;
                                 }) /
                     count;
  const A rstd = 1 / std::sqrt(variance + static_cast<A>(k.eps));
  k.mean.as<A>()[n] = mean;
  k.rstd.as<A>()[n] = rstd;
  const auto y = cpu::plain<T>(k.y).at(n * C);
  const auto scaled = [=](int64_t c) { return (A(x[c]) - mean) * rstd * A(weight[c]); };
  if (!bias) return cpu::put_all(C, y, scaled);
  cpu::put_all(C, y, [=](int64_t c) { return scaled(c) + A(bias[c]); });
}

// A row of the arguments of backward.
template <class T>
struct BackwardRow {
  using A = cpu::accumulator_t<T>;
  const T *dy, *x, *weight;
  A mean, rstd;

  BackwardRow(const LayerNormBackward& k, int64_t n, int64_t C)
      : dy(k.dy.as<T>() + n * C),
        x(k.x.as<T>() + n * C),
        weight(k.weight.as<T>()),
        mean(k.mean.as<A>()[n]),
        rstd(k.rstd.as<A>()[n]) {}
  A g(int64_t c) const { return A(dy[c]) * A(weight[c]); }
  A h(int64_t c) const { return (A(x[c]) - mean) * rstd; }
};

template <class T, class Out>
void backward_row(const BackwardRow<T> row, int64_t C, const Out& dx) {
  using A = cpu::accumulator_t<T>;
  const A count = static_cast<A>(C);
  const A mean_g = cpu::sum<A>(C, [=](int64_t c) { return row.g(c); }) / count;
  const A mean_gh = cpu::sum<A>(C, [=](int64_t c) { return row.g(c) * row.h(c); }) / count;
  cpu::put_all(C, dx,
               [=](int64_t c) { return row.rstd * (row.g(c) - mean_g - row.h(c) * mean_gh); });
}

// Partial sums of dweight and dbias of one piece of rows, C numbers each; null if not needed.
template <class A>
struct Partials {
  A *dweight = nullptr, *dbias = nullptr;

  Partials(const LayerNormBackward& k, int64_t piece, int64_t C) {
    if (!k.workspace) return;  // there are no rows
    A* at = k.workspace.as<A>() + piece * k.partial_sums() * C;
    if (k.dweight) dweight = at, at += C;
    if (k.dbias) dbias = at;
  }
};

// Backward of some rows of bf16, in vectors: all sums in one pass over the rows, then dx.
template <int rows>
struct BackwardGroup {
  using V = cpu::Floats;
  using Halves = cpu::Halves;
  const bf16 *dy, *x, *weight;
  int64_t C;
  V mean[rows], rstd[rows], mean_g[rows], mean_gh[rows];

  BackwardGroup(const LayerNormBackward& k, int64_t n, int64_t row)
      : dy(k.dy.as<bf16>() + n * row),
        x(k.x.as<bf16>() + n * row),
        weight(k.weight.as<bf16>()),
        C(row) {
    for (int r = 0; r < rows; ++r) {
      mean[r] = cpu::splat(cpu::plain_nan(k.mean.as<float>()[n + r]));
      rstd[r] = cpu::splat(cpu::plain_nan(k.rstd.as<float>()[n + r]));
    }
  }
  void sum_up(const Partials<float>& sums);
  template <class Out>
  void put_dx(const Out& dx) const;
};

template <int rows>
void BackwardGroup<rows>::sum_up(const Partials<float>& sums) {
  V g[rows] = {}, gh[rows] = {};
  const auto multiply_add = [](V a, V b, V sum) SPOOL_INLINE { return a * b + sum; };
  cpu::for_spans(C, [&](int64_t c, auto span) SPOOL_INLINE {
    const Halves w = span.load(weight + c);
    Halves dweight, dbias;
    if (sums.dweight) dweight = span.load(sums.dweight + c);
    if (sums.dbias) dbias = span.load(sums.dbias + c);
    cpu::unrolled<rows>([&](int r) SPOOL_INLINE {
      const V mu = mean[r], scale = rstd[r];
      const Halves d = span.load(dy + r * C + c);
      const Halves h = span.within(cpu::each([=](V at) SPOOL_INLINE { return (at - mu) * scale; },
                                             span.load(x + r * C + c)));
      dweight = cpu::each(multiply_add, d, h, dweight);
      dbias = {dbias.even + d.even, dbias.odd + d.odd};
      const V even = d.even * w.even, odd = d.odd * w.odd;
      g[r] += even + odd;
      gh[r] = even * h.even + (odd * h.odd + gh[r]);
    });
    if (sums.dweight) span.store(sums.dweight + c, dweight);
    if (sums.dbias) span.store(sums.dbias + c, dbias);
  });
  const auto count = static_cast<float>(C);
  for (int r = 0; r < rows; ++r) {
    mean_g[r] = cpu::splat(cpu::sum_of(g[r]) / count);
    mean_gh[r] = cpu::splat(cpu::sum_of(gh[r]) / count);
  }
}

template <int rows>
template <class Out>
void BackwardGroup<rows>::put_dx(const Out& dx) const {
  for (int r = 0; r < rows; ++r) {
    const V mu = mean[r], scale = rstd[r], of_g = mean_g[r], of_gh = mean_gh[r] * scale;
    const auto slope = [=](V d, V w, V at)
                           SPOOL_INLINE { return scale * (d * w - of_g - (at - mu) * of_gh); };
    cpu::for_spans(C, [=, this](int64_t c, auto span) SPOOL_INLINE {
      const int64_t at = r * C + c;
      span.put(dx, at,
               cpu::each(slope, span.load(dy + at), span.load(weight + c), span.load(x + at)));
    });
  }
}

template <int rows>
void backward_group(const LayerNormBackward& k, int64_t n, int64_t C,
                    const Partials<float>& partials) {
  BackwardGroup<rows> group(k, n, C);
  group.sum_up(partials);
  if (!k.dx) return;
  cpu::dispatch_sink<bf16>(k.dx, [&](auto dx) { group.put_dx(dx.at(n * C)); });
}

template <class T>
void backward_rows(const LayerNormBackward& k, int64_t begin, int64_t end, int64_t C,
                   const Partials<cpu::accumulator_t<T>>& partials) {
  using A = cpu::accumulator_t<T>;
  if (partials.dweight) std::fill_n(partials.dweight, C, A{0});
  if (partials.dbias) std::fill_n(partials.dbias, C, A{0});
  if constexpr (std::is_same_v<T, bf16>) {
    int64_t n = begin;
    for (; n + 4 <= end; n += 4) backward_group<4>(k, n, C, partials);
    for (; n < end; ++n) backward_group<1>(k, n, C, partials);
    return;
  }
  for (int64_t n = begin; n < end; ++n) {
    const BackwardRow<T> row(k, n, C);
    // The parameters' sums come first: dx may overwrite dy.
    if (partials.dweight) {
      cpu::put_all(C, cpu::Sink<A, true>{partials.dweight},
                   [=](int64_t c) { return A(row.dy[c]) * row.h(c); });
    }
    if (partials.dbias) {
      cpu::put_all(C, cpu::Sink<A, true>{partials.dbias}, [=](int64_t c) { return A(row.dy[c]); });
    }
    if (!k.dx) continue;
    cpu::dispatch_sink<T>(k.dx, [&](auto dx) { backward_row(row, C, dx.at(n * C)); });
  }
}

}  // namespace

void run(const LayerNormForward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) normalise_row<decltype(scalar)>(k, n, C);
    });
  });
}

void run(const LayerNormBackward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  const cpu::RowPieces pieces(N, C);
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    stream.parallel_for(N, pieces.rows, [&](int64_t begin, int64_t end) {
      backward_rows<T>(k, begin, end, C, Partials<A>(k, begin / pieces.rows, C));
    });
    const Partials<A> first(k, 0, C);
    const auto add_up = [&](const Grad& gradient, A* partials) {
      if (!gradient) return;
      cpu::dispatch_sink<T>(gradient, [&](auto out) {
        cpu::add_pieces(stream, partials, k.partial_sums() * C, pieces.count, C, out);
      });
    };
    add_up(k.dweight, first.dweight);
    add_up(k.dbias, first.dbias);
  });
}

size_t LayerNormBackward::workspace_bytes(const CpuArchitecture&) const {
  const int64_t C = x.shape().row();
  const cpu::RowPieces pieces(x.shape().rows(), C);
  return static_cast<size_t>(pieces.count * partial_sums() * C) * size_of(accumulator(x.dtype()));
}

}  // namespace spool
