#include "spool/kernels/layer_norm.h"

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

template <class T>
void backward_rows(const LayerNormBackward& k, int64_t begin, int64_t end, int64_t C,
                   const Partials<cpu::accumulator_t<T>>& partials) {
  using A = cpu::accumulator_t<T>;
  if (partials.dweight) std::fill_n(partials.dweight, C, A{0});
  if (partials.dbias) std::fill_n(partials.dbias, C, A{0});
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
