#include "spool/kernels/head_norm.h"

#include "spool/kernels/cpu/rms_rows.h"

namespace spool {
namespace {

template <class T>
void norm_heads(const HeadNormForward& k, const HeadNormExtents& e, int64_t n) {
  const T* const x = k.x.as<T>() + n * e.row();
  T* const y = k.y.as<T>() + n * e.row();
  auto* const r = k.r.as<cpu::accumulator_t<T>>() + n * e.normed;
  for (int64_t h = 0; h < e.normed; ++h) {
    const T* const weight = (h < e.H ? k.query : k.key).as<T>();
    r[h] = cpu::rms_forward_row(x + h * e.D, weight, e.D, k.eps, y + h * e.D);
  }
  std::copy(x + e.normed * e.D, x + e.row(), y + e.normed * e.D);
}

// `sums` has the sums of dquery and then of dkey; it and dx may be absent.
template <class T, class Out>
void head_norm_backward_token(const HeadNormBackward& k, const HeadNormExtents& e, int64_t n,
                              const Out& dx, cpu::accumulator_t<T>* sums) {
  const T *x = k.x.as<T>() + n * e.row(), *dy = k.dy.as<T>() + n * e.row();
  const auto* const r = k.r.as<cpu::accumulator_t<T>>() + n * e.normed;
  for (int64_t h = 0; h < e.normed; ++h) {
    const bool is_query = h < e.H;
    const cpu::RmsBackwardRow<T> row{dy + h * e.D, x + h * e.D,
                                     (is_query ? k.query : k.key).as<T>(), r[h]};
    if (sums) row.add_dweight(e.D, sums + (is_query ? 0 : e.D));  // first: dx may overwrite dy
    if (dx.to) row.put_dx(e.D, dx.at(n * e.row() + h * e.D));
  }
  if (!dx.to) return;
  const T* const values = dy + e.normed * e.D;
  cpu::put_all((e.packed - e.normed) * e.D, dx.at(n * e.row() + e.normed * e.D),
               [=](int64_t i) { return values[i]; });
}

template <class T>
void head_norm_backward(const HeadNormBackward& k, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  const HeadNormExtents e(k.x, k.heads);
  const cpu::RowPieces pieces(e.N, e.row());
  A* const partials = (k.dquery || k.dkey) && k.workspace ? k.workspace.as<A>() : nullptr;
  const auto tokens = [&](const auto& dx) {
    stream.parallel_for(e.N, pieces.rows, [&](int64_t begin, int64_t end) {
      A* const mine = partials ? partials + begin / pieces.rows * 2 * e.D : nullptr;
      if (mine) std::fill_n(mine, 2 * e.D, A{0});
      for (int64_t n = begin; n < end; ++n) head_norm_backward_token<T>(k, e, n, dx, mine);
    });
  };
  if (k.dx) {
    cpu::dispatch_sink<T>(k.dx, tokens);
  } else {
    tokens(cpu::Sink<T, false>{nullptr});
  }
  const auto add_up = [&](const Grad& gradient, A* sums) {
    if (!gradient) return;
    cpu::dispatch_sink<T>(gradient, [&](auto out) {
      cpu::add_pieces(stream, sums, 2 * e.D, pieces.count, e.D, out);
    });
  };
  add_up(k.dquery, partials);
  add_up(k.dkey, partials ? partials + e.D : nullptr);
}

}  // namespace

void run(const HeadNormForward& k, CpuStream& stream) {
  const HeadNormExtents e(k.x, k.heads);
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    stream.parallel_for(e.N, cpu::piece_rows(e.row()), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) norm_heads<decltype(scalar)>(k, e, n);
    });
  });
}

void run(const HeadNormBackward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) { head_norm_backward<decltype(scalar)>(k, stream); });
}

size_t HeadNormBackward::workspace_bytes(const CpuArchitecture&) const {
  if (!dquery && !dkey) return 0;
  const HeadNormExtents e(x, heads);
  const int64_t pieces = cpu::RowPieces(e.N, e.row()).count;
  return static_cast<size_t>(pieces * 2 * e.D) * size_of(accumulator(x.dtype()));
}

}  // namespace spool
