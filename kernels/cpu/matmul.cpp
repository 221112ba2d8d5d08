#include "spool/kernels/cpu/matmul.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "spool/kernels/cpu/matmul_rows.h"
#include "spool/kernels/cpu/matmul_tile_unit.h"
#include "spool/kernels/cpu/scalar.h"
#include "spool/kernels/cpu/tile_matmul.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace cpu {
namespace {

constexpr int64_t cache_line = 16;  // elements of f32

// The extent of the fewest parts of about the same length that are not longer than max.
int64_t few_parts(int64_t extent, int64_t max) {
  const int64_t parts = std::max<int64_t>(ceil_div(extent, max), 1);
  return std::max<int64_t>(std::min(round_up(ceil_div(extent, parts), cache_line), extent), 1);
}

struct Cut {
  int64_t wanted_parts = 1;
  int64_t min_extent = 1, max_extent = 1;  // of a part
};

// The extent of parts, in whole cache lines, for `others` times as many tiles.  Of the possible
// numbers of parts it is the one with which four threads would be done first or, of several such,
// the one nearest to the wanted one.
int64_t part_extent(int64_t extent, const Cut& cut, int64_t others = 1) {
  constexpr int64_t block = 48, tried = 16;  // a kernel of oneDNN works on whole blocks
  const int64_t fewest = std::max<int64_t>(ceil_div(extent, cut.max_extent), 1);
  const int64_t max = std::min(std::max(fewest, extent / cut.min_extent), fewest + tried);
  int64_t best = extent, distance = 0, min = std::numeric_limits<int64_t>::max();
  for (int64_t parts = fewest; parts <= max; ++parts) {
    const int64_t part = round_up(ceil_div(extent, parts), cache_line);
    const int64_t tiles = ceil_div(extent, part) * others;
    const int64_t time = round_up<int64_t>(tiles, 4) * round_up(part, block);
    const int64_t off = std::abs(parts - cut.wanted_parts);
    if (time > min || (time == min && off >= distance)) continue;
    min = time, distance = off, best = part;
  }
  return std::max<int64_t>(std::min(best, extent), 1);
}

// The extent of parts of about the same length, if the last one would be narrow: oneDNN computes
// narrow tiles of f32 with other kernels, which take 25 ms to compile.
int64_t without_narrow_rest(int64_t extent, int64_t part) {
  constexpr int64_t narrow = 64;
  const int64_t rest = part > 0 ? extent % part : 0;
  if (extent < part || rest == 0 || rest > narrow) return part;
  return round_up<int64_t>(ceil_div(extent, ceil_div(extent, part)), 16);
}

// A part of a tile of c, and copies of parts of the factors in contiguous memory.
template <class S>
struct Parts {
  static constexpr int64_t rows = 96, columns = 64, terms = 64;
  // Everything that is read is written first.
  alignas(vector_bytes) S a[rows * terms], b[terms * columns], c[rows * columns];
};

struct Strides {
  int64_t row, column;
};

// `to` is row-major or, if its column stride is not 1, column-major; `from` is read in the order of
// its memory.
template <class T, class S>
void copy(const T* from, int64_t from_row, S* to, Strides at, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      to[i * at.row + j * at.column] = static_cast<S>(from[i * from_row + j]);
    }
  }
}

template <class S>
void fill_zeros(S* to, Strides at, Range rows, Range columns) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) to[i * at.row + j * at.column] = 0;
  }
}

// Rows are filled up to a whole block.
template <class T>
LeftTile<accumulator_t<T>> pack_a(const Matmul& k, Range m, Range terms,
                                  Parts<accumulator_t<T>>& to) {
  using P = Parts<accumulator_t<T>>;
  const T* a = k.a.as<T>();
  const Range rest{m.size(), round_up(m.size(), block_rows)}, all{0, terms.size()};
  if (k.a_transposed) {
    fill_zeros(to.a, {P::rows, 1}, all, rest);
    copy(a + terms.begin * k.a_stride() + m.begin, k.a_stride(), to.a, {P::rows, 1}, terms.size(),
         m.size());
    return {to.a, 1, P::rows};
  }
  fill_zeros(to.a, {P::terms, 1}, rest, all);
  copy(a + m.begin * k.a_stride() + terms.begin, k.a_stride(), to.a, {P::terms, 1}, m.size(),
       terms.size());
  return {to.a, P::terms, 1};
}

// Columns are filled up to whole vectors.
template <class T>
Tile<accumulator_t<T>> pack_b(const Matmul& k, Range terms, Range n, Parts<accumulator_t<T>>& to) {
  using P = Parts<accumulator_t<T>>;
  const T* b = k.b.as<T>();
  const Range rest{n.size(), round_up(n.size(), Vector<accumulator_t<T>>::lanes)};
  fill_zeros(to.b, {P::columns, 1}, {0, terms.size()}, rest);
  if (k.b_transposed) {
    copy(b + n.begin * k.b_stride() + terms.begin, k.b_stride(), to.b, {1, P::columns}, n.size(),
         terms.size());
  } else {
    copy(b + terms.begin * k.b_stride() + n.begin, k.b_stride(), to.b, {P::columns, 1},
         terms.size(), n.size());
  }
  return {to.b, P::columns};
}

// Bias and the old value of c are added last.
template <class T, class C>
void store(const Matmul& k, Range rows, Range columns, const Parts<accumulator_t<T>>& from) {
  using S = accumulator_t<T>;
  const T* bias = k.bias.as<T>();
  const S alpha = static_cast<S>(k.alpha);
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    const S* sums = from.c + (m - rows.begin) * Parts<S>::columns;
    C* c = k.c.view.as<C>() + m * k.c_stride();
    for (int64_t n = columns.begin; n < columns.end; ++n) {
      S sum = alpha * sums[n - columns.begin] + (bias ? static_cast<S>(bias[n]) : 0);
      if (k.c.accumulate) sum += static_cast<S>(c[n]);
      c[n] = static_cast<C>(sum);
    }
  }
}

// Adds up the terms in blocks; the sums stay in parts.c.
template <class T, class C>
void plain_part(const Matmul& k, Range rows, Range columns, Parts<accumulator_t<T>>& parts) {
  using S = accumulator_t<T>;
  using P = Parts<S>;
  int64_t i = 0;
  do {  // at least once: without terms the sums are 0
    const Range terms{i, std::min(i + P::terms, k.K())};
    const LeftTile<S> a = pack_a<T>(k, rows, terms, parts);
    const Tile<S> b = pack_b<T>(k, terms, columns, parts);
    const BlockPart all{{0, terms.size()}, {0, round_up(columns.size(), Vector<S>::lanes)}};
    multiply<S>(
        {.c = {parts.c, P::columns}, .a = a, .b = b, .rows = rows.size(), .accumulate = i > 0},
        [&](int64_t) { return all; });
    i = terms.end;
  } while (i < k.K());
  store<T, C>(k, rows, columns, parts);
}

template <class T, class C>
void plain_tile(const Matmul& k, Range rows, Range columns) {
  using P = Parts<accumulator_t<T>>;
  P parts;
  for (int64_t n = columns.begin; n < columns.end; n += P::columns) {
    for (int64_t m = rows.begin; m < rows.end; m += P::rows) {
      plain_part<T, C>(k, {m, std::min(m + P::rows, rows.end)},
                       {n, std::min(n + P::columns, columns.end)}, parts);
    }
  }
}

// How many tiles of small products a thread takes at once, as each takes very little time.
int64_t tiles_together(const Matmul& k) {
  constexpr int64_t products = 128 * 1024;
  return is_small(k) ? products / std::max<int64_t>(k.M() * k.N() * k.K(), 512) : 1;
}

}  // namespace

// Cuts the factor that is read in strides: the columns of b or, if a is transposed, as for the
// gradient of weights, the columns of a.
Tiling tiling(const Matmul& k) {
  Tiling t;
  if (k.a_transposed) {
    t.rows = part_extent(k.M(), {.wanted_parts = 16, .min_extent = 96, .max_extent = 1024});
    t.columns = few_parts(k.N(), 4096);
  } else {
    t.rows = few_parts(k.M(), 512);
    t.columns = part_extent(k.N(), {.wanted_parts = 8, .min_extent = 128, .max_extent = 1024},
                            ceil_div(k.M(), t.rows));
  }
  t.columns = without_narrow_rest(k.N(), t.columns);
  t.row_tiles = ceil_div(k.M(), t.rows);
  t.column_tiles = ceil_div(k.N(), t.columns);
  return t;
}

bool is_small(const Matmul& k) {
  constexpr int64_t max_extent = 64, max_products = 32 * 32 * 32;
  const int64_t M = k.M(), N = k.N(), K = k.K();
  return std::max({M, N, K}) <= max_extent && M * N * K <= max_products;
}

// What oneDNN 2 keeps for a tile, at most, on any processor: copies of the tile's rows of a and of
// 64 columns of b, of all terms in whole cache lines, two of each if they are bf16; the sums in
// f32; pointers, and for bf16 the contents of four tile registers.  It works on blocks of 32 to 64
// rows, up to four at a time, and of 64 columns.  With less it would refuse, and plain loops are
// slower.
size_t tile_scratch(const Matmul& k, const Tiling& t) {
  constexpr int64_t block = 64, line = 64, pointers = 1 << 10, registers = 4 << 10;
  constexpr int64_t max_bytes = 1 << 20;
  if (k.a.dtype() == DType::f64 || k.K() == 0) return 0;
  const bool narrow = k.a.dtype() == DType::bf16;
  const int64_t rows = t.rows + std::min(t.rows, 2 * block);
  const int64_t terms = round_up<int64_t>(k.K() + k.K() / 16, 16);
  const int64_t words = (rows + block) * terms + rows * round_up(t.columns, block);  // of 4 bytes
  const int64_t bytes = round_up(4 * words, line) + pointers + (narrow ? registers : 0);
  const int64_t sums = narrow ? 4 * t.rows * t.columns : 0;  // of a large tile, beside the limit
  return static_cast<size_t>(std::min(bytes, max_bytes) + sums);
}

size_t products_workspace(const MatmulBatch& all, const CpuArchitecture& architecture) {
  if (on_tile_unit(all.first, architecture)) return tile_unit_workspace(all, architecture);
  if (is_small(all.first)) return 0;
  const Tiling t = tiling(all.first);
  return static_cast<size_t>(std::min<int64_t>(architecture.threads, all.count * t.tiles())) *
         tile_scratch(all.first, t);
}

void multiply_plain(const MatmulBatch& all, const Tiling& t, CpuStream& stream) {
  const Matmul& one = all.first;
  dispatch(one.a.dtype(), [&]<class T>(T) {
    dispatch_gradient<T>(one.c.view.dtype(), [&]<class C>(C) {
      const auto body = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Matmul k = all.at(i / t.tiles());
          const int64_t tile = i % t.tiles();
          const int64_t m = tile / t.column_tiles * t.rows, n = tile % t.column_tiles * t.columns;
          plain_tile<T, C>(k, {m, std::min(m + t.rows, k.M())},
                           {n, std::min(n + t.columns, k.N())});
        }
      };
      stream.parallel_for(all.count * t.tiles(), tiles_together(one), body);
    });
  });
}

void multiply(const MatmulBatch& all, CpuStream& stream) {
  if (on_tile_unit(all.first, stream.cpu())) return multiply_on_tile_unit(all, stream);
  const Tiling t = tiling(all.first);
  if (all.first.K() > 0 && !is_small(all.first) && multiply_onednn(all, t, stream)) return;
  multiply_plain(all, t, stream);
}

}  // namespace cpu

void run(const Matmul& k, CpuStream& stream) {
  if (k.M() == 0 || k.N() == 0) return;
  if (!cpu::on_tile_unit(k, stream.cpu()) && cpu::has_few_rows(k)) {
    return cpu::multiply_few_rows(k, stream);
  }
  cpu::multiply(k, stream);
}

size_t Matmul::workspace_bytes(const CpuArchitecture& architecture) const {
  if (!cpu::on_tile_unit(*this, architecture) && cpu::has_few_rows(*this)) return 0;
  return cpu::products_workspace(*this, architecture);
}

}  // namespace spool
