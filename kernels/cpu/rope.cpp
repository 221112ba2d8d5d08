#include "spool/kernels/rope.h"

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

int64_t position_of(const Rope& k, int64_t n) {
  if (!k.positions) return k.first_position + n % k.x.shape()[-2];
  const int64_t p = k.positions.as<int32_t>()[n], rows = k.table.shape().rows();
  check(p >= 0 && p < rows, "rope: position ", p, " of token ", n, " is not in [0, ", rows,
        "), the rows of the table");
  return p;
}

// A head's halves a and b, each pair turned by its angle; y may be their memory.
template <class T, class Out>
void turn_head(const T* a, const cpu::accumulator_t<T>* cosines, int64_t half,
               cpu::accumulator_t<T> sign, const Out& y) {
  using A = cpu::accumulator_t<T>;
  const T* const b = a + half;
  const A* const sines = cosines + half;
  cpu::put_all(half, cpu::TwoSinks<Out>{y, y.at(half)}, [=](int64_t d) {
    const A first = A(a[d]), second = A(b[d]), c = cosines[d], s = sign * sines[d];
    return cpu::Two<A>{first * c - second * s, second * c + first * s};
  });
}

template <class T, class Out>
void turn_token(const Rope& k, int64_t n, const Out& all) {
  using A = cpu::accumulator_t<T>;
  const int64_t D = k.head_size(), row = k.x.shape().row(), turned = k.heads.query + k.heads.key;
  const A* const angles = k.table.as<A>() + position_of(k, n) * D;
  const T* const x = k.x.as<T>() + n * row;
  const Out y = all.at(n * row);
  for (int64_t h = 0; h < turned; ++h) {
    turn_head(x + h * D, angles, D / 2, static_cast<A>(k.back ? -1 : 1), y.at(h * D));
  }
  const T* const values = x + turned * D;
  cpu::put_all(row - turned * D, y.at(turned * D), [=](int64_t i) { return values[i]; });
}

}  // namespace

void run(const Rope& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), row = k.x.shape().row();
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(k.y, [&](auto y) {
      stream.parallel_for(N, cpu::piece_rows(row), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) turn_token<T>(k, n, y);
      });
    });
  });
}

}  // namespace spool
