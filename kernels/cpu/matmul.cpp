#include "spool/kernels/cpu/matmul.h"

#include <algorithm>

#include "spool/kernels/cpu/scalar.h"

namespace spool {
namespace cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// About an n-th of the extent, in whole cache lines, within bounds.
int64_t share(int64_t extent, int64_t n, int64_t least, int64_t most) {
  const int64_t wanted = std::clamp(ceil_div(extent, n), least, most);
  return std::min(ceil_div(wanted, 16) * 16, std::max<int64_t>(extent, 1));
}

template <class T, class C>
void plain_tile(const Matmul& k, Range rows, Range columns) {
  using S = accumulator_t<T>;
  constexpr int64_t block = 64;
  const int64_t M = k.M(), N = k.N(), K = k.K();
  const T *a = k.a.as<T>(), *b = k.b.as<T>(), *bias = k.bias.as<T>();
  C* c = k.c.view.as<C>();
  for (int64_t n0 = columns.begin; n0 < columns.end; n0 += block) {
    const int64_t width = std::min(block, columns.end - n0);
    for (int64_t m = rows.begin; m < rows.end; ++m) {
      S sums[block] = {};
      for (int64_t i = 0; i < K; ++i) {
        const S factor = static_cast<S>(k.a_transposed ? a[i * M + m] : a[m * K + i]);
        const T* from = k.b_transposed ? b + n0 * K + i : b + i * N + n0;
        const int64_t stride = k.b_transposed ? K : 1;
        for (int64_t n = 0; n < width; ++n) sums[n] += factor * static_cast<S>(from[n * stride]);
      }
      for (int64_t n = 0; n < width; ++n) {
        S sum = sums[n] + (bias ? static_cast<S>(bias[n0 + n]) : 0);
        if (k.c.accumulate) sum += static_cast<S>(c[m * N + n0 + n]);
        c[m * N + n0 + n] = static_cast<C>(sum);
      }
    }
  }
}

}  // namespace

// The factor that is read in strides is the one to cut: the columns of b, or, for a gradient of
// weights, where a is transposed, its columns.
Tiling tiling(const Matmul& k) {
  Tiling t;
  if (k.a_transposed) {
    t.rows = share(k.M(), 16, 96, 1024);
    t.columns = share(k.N(), 1, 1, 4096);
  } else {
    t.rows = share(k.M(), 1, 1, 512);
    t.columns = share(k.N(), 8, 192, 1024);
  }
  t.row_tiles = ceil_div(k.M(), t.rows);
  t.column_tiles = ceil_div(k.N(), t.columns);
  return t;
}

// oneDNN keeps an f32 copy of a bf16 tile, and blocks of the factors.
size_t tile_scratch(const Matmul& k, const Tiling& t) {
  constexpr size_t blocks = size_t{1} << 20;
  if (k.a.dtype() == DType::f64) return 0;
  const bool narrow = k.a.dtype() == DType::bf16;
  return blocks + (narrow ? static_cast<size_t>(t.rows * t.columns) * sizeof(float) : 0);
}

void multiply_plain(const Matmul& k, const Tiling& t, CpuStream& stream) {
  dispatch(k.a.dtype(), [&]<class T>(T) {
    dispatch_gradient<T>(k.c.view.dtype(), [&]<class C>(C) {
      stream.parallel_for(t.tiles(), 1, [&](int64_t tile, int64_t) {
        const int64_t m = tile / t.column_tiles * t.rows, n = tile % t.column_tiles * t.columns;
        plain_tile<T, C>(k, {m, std::min(m + t.rows, k.M())}, {n, std::min(n + t.columns, k.N())});
      });
    });
  });
}

}  // namespace cpu

size_t Matmul::workspace_bytes(const Architecture& arch) const {
  if (arch.type != DeviceType::cpu) return size_t{32} << 20;
  const cpu::Tiling t = cpu::tiling(*this);
  return static_cast<size_t>(std::min<int64_t>(arch.threads, t.tiles())) *
         cpu::tile_scratch(*this, t);
}

void run(const Matmul& k, CpuStream& stream) {
  if (k.M() == 0 || k.N() == 0) return;
  const cpu::Tiling t = cpu::tiling(k);
  if (k.K() > 0 && cpu::multiply_onednn(k, t, stream)) return;
  cpu::multiply_plain(k, t, stream);
}

}  // namespace spool
