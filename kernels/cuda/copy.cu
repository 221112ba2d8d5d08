#include "spool/kernels/copy.h"

#include <algorithm>

#include "spool/kernels/copy_loops.h"
#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/table.cuh"

namespace spool {
namespace cuda {
namespace {

// A block of 8 warps copies a tile of 32 x 32, four elements by each thread.
constexpr int tile = 32, tile_rows = 8, tile_block = tile * tile_rows;

// a / b, by a division of 32 bits where these suffice.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

struct Loop {
  int64_t extent = 1, out = 0, in = 0;
  Loop() = default;
  explicit Loop(const CopyLoops::Loop& l) : extent(l.extent), out(l.out), in(l.in) {}
};

// Where a row begins in both tensors.
struct Row {
  int64_t out = 0, in = 0;
  // Adds the next outer loop's part, which it takes from the row's number.
  __device__ __forceinline__ void add(const Loop& loop, int64_t& number) {
    if (loop.extent == 1) return;
    const int64_t rest = quotient(number, loop.extent), at = number - rest * loop.extent;
    out += at * loop.out;
    in += at * loop.in;
    number = rest;
  }
};

template <class T, class Out>
struct Rows {
  Sink<Out> out;
  const T* in;
  Loop outer, middle, inner;
  int64_t units, count;  // in a row, and in all: n elements each
};

template <int n, class T, class Out>
__device__ __forceinline__ void copy_unit(const Rows<T, Out>& k, int64_t unit) {
  if (unit >= k.count) return;
  int64_t number = quotient(unit, k.units);
  const int64_t column = (unit - number * k.units) * n;
  Row row;
  row.add(k.inner, number);
  row.add(k.middle, number);
  row.add(k.outer, number);
  const Raw<n, T> raw = load_raw<n>(k.in + row.in + column);
  const Raw<n, Out> before = k.out.template before<n>(row.out + column);
  if constexpr (std::is_same_v<T, Out>) {  // bits, which may be of integers
    if (!k.out.accumulate) return store_raw<n>(k.out.data + row.out + column, raw);
  }
  k.out.put(row.out + column, floats_of(raw), before);
}

template <class T, class Out, int n>
__global__ void __launch_bounds__(map_block) copy_rows(Rows<T, Out> k) {
  copy_unit<n>(k, int64_t{blockIdx.x} * map_block + threadIdx.x);
}

template <class T, class Out>
struct RowsOfBlock {
  Rows<T, Out> rows;
  bool wide = false;
  unsigned first = 0;  // block of the grid
};
template <class T, class Out>
using BlockTable = Table<RowsOfBlock<T, Out>, CopyBlocks::max_blocks>;

template <class T, class Out>
__global__ void __launch_bounds__(map_block)
    copy_blocks(const __grid_constant__ BlockTable<T, Out> all) {
  static_assert(sizeof(all) <= max_parameter_bytes);
  const RowsOfBlock<T, Out>& b = all.of_block(blockIdx.x);
  const int64_t unit = int64_t{blockIdx.x - b.first} * map_block + threadIdx.x;
  if (b.wide) {
    copy_unit<map_width>(b.rows, unit);
  } else {
    copy_unit<1>(b.rows, unit);
  }
}

template <class T, class Out>
struct Tiles {
  Sink<Out> out;
  const T* in;
  Loop of_in, of_out;  // over neighbours in `in`, and in `out`
  Loop outer, inner;   // the other two
  int64_t bands, spans;
};

// The tile of this block: where its rows begin, and its first neighbours along of_out and of_in.
template <class T, class Out>
struct Tile {
  Row row;
  int64_t to, from;
  __device__ __forceinline__ Tile(const Tiles<T, Out>& k, int edge) {
    int64_t number = quotient(blockIdx.x, k.spans);
    to = (blockIdx.x - number * k.spans) * edge;
    const int64_t bands = quotient(number, k.bands);
    from = (number - bands * k.bands) * edge;
    number = bands;
    row.add(k.inner, number);
    row.add(k.outer, number);
  }
};

template <class T, class Out>
__global__ void __launch_bounds__(tile_block) copy_tiles(Tiles<T, Out> k) {
  SPOOL_SHARED_2D(T, shared, tile, tile + 1);
  const int x = static_cast<int>(threadIdx.x) % tile, y = static_cast<int>(threadIdx.x) / tile;
  const auto [row, to, from] = Tile(k, tile);
#pragma unroll
  for (int j = y; j < tile; j += tile_rows) {
    if (to + j < k.of_out.extent && from + x < k.of_in.extent) {
      shared[j][x] = k.in[row.in + (to + j) * k.of_out.in + from + x];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = y; i < tile; i += tile_rows) {
    if (to + x < k.of_out.extent && from + i < k.of_in.extent) {
      Floats<1> value;
      value.at[0] = to_float(shared[x][i]);
      k.out.template put<1>(row.out + (from + i) * k.of_in.out + to + x, value);
    }
  }
}

// The same for a tile of 64 x 64, of which a thread moves 8 neighbours of `in` at a time, and then
// writes 8 neighbours of `out`.
constexpr int wide_tile = 64, wide_units = wide_tile / map_width,
              wide_rows = tile_block / wide_units;

template <class T, class Out>
__global__ void __launch_bounds__(tile_block) copy_wide_tiles(Tiles<T, Out> k) {
  constexpr int passes = wide_tile / wide_rows;
  SPOOL_SHARED_2D(T, shared, wide_tile, wide_tile + 4 / static_cast<int>(sizeof(T)));
  const int x = static_cast<int>(threadIdx.x) % wide_units * map_width,
            y = static_cast<int>(threadIdx.x) / wide_units;
  const auto [row, to, from] = Tile(k, wide_tile);
  Raw<map_width, T> raw[passes];
#pragma unroll
  for (int p = 0; p < passes; ++p) {
    const int j = y + p * wide_rows;
    const bool in_range = to + j < k.of_out.extent && from + x < k.of_in.extent;
    raw[p] = load_raw<map_width>(k.in + row.in + (to + j) * k.of_out.in + from + x, in_range);
  }
#pragma unroll
  for (int p = 0; p < passes; ++p) {
    T all[map_width];
    memcpy(all, raw[p].at, sizeof all);
#pragma unroll
    for (int e = 0; e < map_width; ++e) shared[y + p * wide_rows][x + e] = all[e];
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < passes; ++p) {
    const int i = y + p * wide_rows;
    if (to + x >= k.of_out.extent || from + i >= k.of_in.extent) continue;
    Floats<map_width> values;
#pragma unroll
    for (int e = 0; e < map_width; ++e) values.at[e] = to_float(shared[x + e][i]);
    k.out.template put<map_width>(row.out + (from + i) * k.of_in.out + to + x, values);
  }
}

dim3 grid_of(int64_t blocks) {
  check(blocks < int64_t{1} << 31, "a copy on cuda: ", blocks, " blocks are more than 2^31 - 1");
  return dim3(unsigned(blocks));
}

template <class T, class Out>
RowsOfBlock<T, Out> rows_of(const CopyLoops& loops, const Sink<Out>& out, const T* in) {
  const auto& l = loops.loops;
  bool wide = (reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(out.data)) % 16 == 0 &&
              loops.last().extent % map_width == 0;
  for (size_t i = 0; i < 3; ++i) {
    wide = wide && (l[i].extent == 1 || (l[i].out % map_width == 0 && l[i].in % map_width == 0));
  }
  const int64_t units = wide ? l[3].extent / map_width : l[3].extent;
  return {.rows = {.out = out,
                   .in = in,
                   .outer = Loop(l[0]),
                   .middle = Loop(l[1]),
                   .inner = Loop(l[2]),
                   .units = units,
                   .count = loops.rows() * units},
          .wide = wide};
}

template <class T, class Out>
void launch_rows(CudaStream& stream, const CopyLoops& loops, const Sink<Out>& out, const T* in) {
  const auto [rows, wide, first] = rows_of(loops, out, in);
  const auto kernel = wide ? copy_rows<T, Out, map_width> : copy_rows<T, Out, 1>;
  launch_kernel(
      stream, kernel,
      {.grid = grid_of(ceil_div<int64_t>(rows.count, map_block)), .block = dim3(map_block)}, rows);
}

template <class T, class Out>
void launch_blocks(CudaStream& stream, const CopyBlocks& k, const Sink<Out>& out, const T* in) {
  BlockTable<T, Out> all = {};
  int64_t blocks = 0;
  for (const CopyBlocks::Block& b : k.blocks) {
    if (b.elements() == 0) continue;
    Sink<Out> to = out;
    to.data += b.out_first;
    RowsOfBlock<T, Out> rows = rows_of(CopyLoops(b), to, in + b.in_first);
    rows.first = static_cast<unsigned>(blocks);
    all.add(rows);
    blocks += ceil_div<int64_t>(rows.rows.count, map_block);
  }
  if (blocks == 0) return;
  launch_kernel(stream, copy_blocks<T, Out>, {.grid = grid_of(blocks), .block = dim3(map_block)},
                all);
}

// Whether both sides of all tiles can be moved by eights, and are long enough to fill wide tiles.
template <class T, class Out>
bool by_eights(const Tiles<T, Out>& all) {
  const auto whole = [](int64_t n) { return n % map_width == 0; };
  const bool eights =
      (reinterpret_cast<uintptr_t>(all.in) | reinterpret_cast<uintptr_t>(all.out.data)) % 16 == 0 &&
      whole(all.of_in.extent) && whole(all.of_in.out) && whole(all.of_out.extent) &&
      whole(all.of_out.in) && std::min(all.of_in.extent, all.of_out.extent) >= tile;
  const auto keeps = [&](const Loop& loop) {
    return loop.extent == 1 || (whole(loop.in) && whole(loop.out));
  };
  return eights && keeps(all.outer) && keeps(all.inner);
}

template <class T, class Out>
void launch_tiles(CudaStream& stream, const CopyLoops& loops, const Sink<Out>& out, const T* in) {
  const size_t neighbours = loops.neighbours();
  Tiles<T, Out> all{.out = out,
                    .in = in,
                    .of_in = Loop(loops.loops[neighbours]),
                    .of_out = Loop(loops.last()),
                    .outer = Loop(loops.loops[neighbours == 0 ? 1 : 0]),
                    .inner = Loop(loops.loops[neighbours == 2 ? 1 : 2]),
                    .bands = 0,
                    .spans = 0};
  const bool wide = by_eights(all);
  const int64_t edge = wide ? wide_tile : tile;
  all.bands = ceil_div(all.of_in.extent, edge);
  all.spans = ceil_div(all.of_out.extent, edge);
  const int64_t blocks = all.outer.extent * all.inner.extent * all.bands * all.spans;
  launch_kernel(stream, wide ? copy_wide_tiles<T, Out> : copy_tiles<T, Out>,
                {.grid = grid_of(blocks), .block = dim3(tile_block)}, all);
}

template <class T, class Out>
void copy(CudaStream& stream, const CopyLoops& loops, Sink<Out> out, int64_t out_first,
          const T* in) {
  out.data += out_first;
  if (loops.keeps_rows()) return launch_rows(stream, loops, out, in);
  launch_tiles(stream, loops, out, in);
}

// Calls f(sink of out, data of in).
template <class F>
void dispatch_copy(const Grad& out, const View& in, const F& f) {
  if (in.dtype() == DType::i32) {  // moved as f32, in which nothing is computed
    return f(Sink<float>(out), in.as<const float>());
  }
  dispatch(in.dtype(), [&](auto x) {
    using T = decltype(x);
    dispatch_gradient<T>(out.view.dtype(),
                         [&](auto y) { f(Sink<decltype(y)>(out), in.as<const T>()); });
  });
}

void copy(CudaStream& stream, const CopyLoops& loops, const Grad& out, int64_t out_first,
          const View& in, int64_t in_first) {
  if (loops.elements() == 0) return;
  dispatch_copy(out, in, [&](auto to, const auto* from) {
    copy(stream, loops, to, out_first, from + in_first);
  });
}

}  // namespace
}  // namespace cuda

void run(const StridedCopy& k, CudaStream& stream) {
  cuda::copy(stream, CopyLoops(k), k.out, k.out_first, k.in, k.in_first);
}

void run(const CopyBlocks& k, CudaStream& stream) {
  cuda::dispatch_copy(k.out, k.in,
                      [&](auto to, const auto* from) { cuda::launch_blocks(stream, k, to, from); });
}

void run(const Permute& k, CudaStream& stream) {
  cuda::copy(stream, CopyLoops(k), k.out, 0, k.in, 0);
}

}  // namespace spool
