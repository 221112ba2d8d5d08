#include "spool/kernels/rms_norm.h"

#include "spool/kernels/cpu/rms_rows.h"

namespace spool {
namespace {

template <class T, class Out>
void rms_backward_rows(const RmsNormBackward& k, int64_t begin, int64_t end, const Out& dx,
                       cpu::accumulator_t<T>* dweight) {
  using A = cpu::accumulator_t<T>;
  const int64_t C = k.x.shape().row();
  if (dweight) std::fill_n(dweight, C, A{0});
  for (int64_t n = begin; n < end; ++n) {
    const cpu::RmsBackwardRow<T> row{k.dy.as<T>() + n * C, k.x.as<T>() + n * C, k.weight.as<T>(),
                                     k.r.as<A>()[n]};
    if (dweight) row.add_dweight(C, dweight);  // first: dx may overwrite dy
    if (dx.to) row.put_dx(C, dx.at(n * C));
  }
}

template <class T>
void rms_backward(const RmsNormBackward& k, CpuStream& stream) {
  using A = cpu::accumulator_t<T>;
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  const cpu::RowPieces pieces(N, C);
  A* const partials = k.dweight && k.workspace ? k.workspace.as<A>() : nullptr;
  const auto rows = [&](const auto& dx) {
    stream.parallel_for(N, pieces.rows, [&](int64_t begin, int64_t end) {
      A* const mine = partials ? partials + begin / pieces.rows * C : nullptr;
      rms_backward_rows<T>(k, begin, end, dx, mine);
    });
  };
  if (k.dx) {
    cpu::dispatch_sink<T>(k.dx, rows);
  } else {
    rows(cpu::Sink<T, false>{nullptr});
  }
  if (!k.dweight) return;
  cpu::dispatch_sink<T>(k.dweight, [&](auto dweight) {
    cpu::add_pieces(stream, partials, C, pieces.count, C, dweight);
  });
}

}  // namespace

void run(const RmsNormForward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        k.r.as<cpu::accumulator_t<T>>()[n] = cpu::rms_forward_row(
            k.x.as<T>() + n * C, k.weight.as<T>(), C, k.eps, k.y.as<T>() + n * C);
      }
    });
  });
}

void run(const RmsNormBackward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) { rms_backward<decltype(scalar)>(k, stream); });
}

// Bytes of the sums of dweight over pieces, or groups, of rows.
size_t RmsNormBackward::workspace_bytes(const CpuArchitecture&) const {
  if (!dweight) return 0;
  const int64_t C = x.shape().row();
  const cpu::RowPieces pieces(x.shape().rows(), C);
  return static_cast<size_t>(pieces.count * C) * size_of(accumulator(x.dtype()));
}

}  // namespace spool
