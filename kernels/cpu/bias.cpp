#include "spool/kernels/bias.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// sum[c] = sum over n in [begin, end) of dy[n,c]; four rows at a time, for fewer passes over sum.
template <class T, class A>
void sum_row_range(const T* dy, int64_t begin, int64_t end, int64_t C, A* sum) {
  std::fill_n(sum, C, A{0});
  const cpu::Sink<A, true> out{sum};
  int64_t n = begin;
  for (; n + 4 <= end; n += 4) {
    const T *a = dy + n * C, *b = a + C, *c = b + C, *d = c + C;
    cpu::put_all(C, out, [=](int64_t i) { return (A(a[i]) + A(b[i])) + (A(c[i]) + A(d[i])); });
  }
  for (; n < end; ++n) {
    const T* row = dy + n * C;
    cpu::put_all(C, out, [=](int64_t i) { return A(row[i]); });
  }
}

}  // namespace

void run(const BiasBackward& k, CpuStream& stream) {
  const int64_t N = k.dy.shape().rows(), C = k.dy.shape().row();
  const cpu::RowPieces pieces(N, C);
  cpu::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    A* partials = k.workspace.as<A>();
    stream.parallel_for(N, pieces.rows, [&](int64_t begin, int64_t end) {
      sum_row_range(k.dy.as<T>(), begin, end, C, partials + begin / pieces.rows * C);
    });
    cpu::dispatch_sink<T>(
        k.dbias, [&](auto dbias) { cpu::add_pieces(stream, partials, C, pieces.count, C, dbias); });
  });
}

size_t BiasBackward::workspace_bytes(const CpuArchitecture&) const {
  const int64_t C = dy.shape().row();
  const cpu::RowPieces pieces(dy.shape().rows(), C);
  return static_cast<size_t>(pieces.count * C) * size_of(accumulator(dy.dtype()));
}

}  // namespace spool
