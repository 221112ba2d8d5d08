#include "spool/kernels/cpu/matmul_tile_unit.h"

#include <algorithm>
#include <bit>

#include "spool/kernels/cpu/tile_unit/kernels.h"
#include "spool/runtime/check.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {
namespace {

using tiles::Interval, tiles::Product;

constexpr int64_t tile_block = 32;

int64_t whole_blocks(int64_t extent) { return round_up(extent, tile_block); }
Interval part(int64_t i, int64_t extent, int64_t whole) {
  return {i * extent, std::min((i + 1) * extent, whole)};
}

// The extent, in whole blocks, of parts of about the same extent, at most `most`; where the parts
// are few their number is a multiple of `even_for`, so that as many threads are done together.
int64_t even_part(int64_t extent, int64_t most, int64_t even_for = 1) {
  int64_t parts = std::max<int64_t>(ceil_div(extent, most), 1);
  if (parts < 4 * even_for) parts = round_up(parts, even_for);
  return std::max(whole_blocks(ceil_div(extent, parts)), tile_block);
}

// Three ways to compute a product.  `strips`: each task packs the right panels of its columns.
// `shared`: of a gradient of a weight, with many rows of both factors: right panels are packed for
// all threads, and left ones for each strip of rows.  `turned`: of few rows of a, with the
// rows of b in place.
enum class ProductWay : uint8_t { strips, shared, turned };

constexpr int64_t even_threads = 4;

struct ProductCut {
  ProductWay way = ProductWay::strips;
  int64_t rows = 0, columns = 0, terms = 0;  // of a task, and of what is packed at a time

  explicit ProductCut(const MatmulBatch& all) {
    const Matmul& k = all.first;
    const bool one = all.count == 1;
    if (one && k.M() <= tiles::most_turned_rows && k.b_transposed && !k.a_transposed) {
      turn(k);
    } else if (one && k.a_transposed && std::min(k.M(), k.N()) > 128) {
      share(k);
    } else {
      rows = std::min<int64_t>(whole_blocks(k.M()), 1024);
      columns = even_part(k.N(), 384, even_threads);
      terms = even_part(k.K(), 768);
    }
  }

 private:
  // Pieces of b are long, as a processor takes a while to detect that memory is read in order.
  void turn(const Matmul& k) {
    constexpr int64_t pieces = 16, shortest = 64 * 1024, longest = 256 * 1024;
    const int64_t row = 2 * std::max<int64_t>(k.K(), 1);
    const int64_t bytes = std::clamp(k.N() * row / pieces, shortest, longest);
    way = ProductWay::turned;
    rows = k.M();
    columns = round_up(bytes / row + 1, 2 * tile_block);
    terms = k.K();
  }
  void share(const Matmul& k) {
    way = ProductWay::shared;
    columns = even_part(k.N(), 768);
    terms = k.K() <= 1024 ? even_part(k.K(), 1024) : even_part(k.K(), 512);
    rows = even_part(k.M(), 256, even_threads);
  }
};

// The tasks of a product among threads, cut for the next power of two of them.
struct ProductTasks {
  int64_t rows;  // of a task
  int64_t row_parts, column_parts;
  int64_t tasks;         // of all products that run side by side
  int64_t together = 1;  // tasks of small products, which take very little time
  int64_t lanes;         // threads at work at a time

  ProductTasks(const MatmulBatch& all, const ProductCut& cut, int threads) : rows(cut.rows) {
    const Matmul& k = all.first;
    const auto cut_for = static_cast<int64_t>(std::bit_ceil(static_cast<unsigned>(threads)));
    column_parts = cut.way == ProductWay::shared ? 1 : ceil_div(k.N(), cut.columns);
    const int64_t wanted = ceil_div(cut_for, column_parts * all.count);
    if (cut.way != ProductWay::turned) {
      rows = std::min(rows, std::max(whole_blocks(ceil_div(k.M(), wanted)), tiles::group_rows));
    }
    row_parts = ceil_div(k.M(), rows);
    tasks = all.count * row_parts * column_parts;
    if (cut.way == ProductWay::strips) {
      constexpr int64_t products = 512 * 1024;
      together = std::max<int64_t>(products / std::max<int64_t>(rows * cut.columns * k.K(), 1), 1);
      together = std::clamp<int64_t>(tasks / cut_for, 1, together);
    }
    lanes = std::min<int64_t>(threads, ceil_div(tasks, together));
  }
};

// Bytes of a lane: its panels, and the sums of all its rows if they stay from one part of the terms
// to the next.
int64_t lane_bytes(const Matmul& k, const ProductCut& cut, int64_t task_rows) {
  constexpr int64_t f32 = sizeof(float);
  const int64_t panel = 2 * cut.terms, rows = whole_blocks(std::min(task_rows, k.M()));
  const bool stay = cut.terms < k.K();
  if (cut.way == ProductWay::turned) return 0;
  if (cut.way == ProductWay::strips) {
    const int64_t columns = whole_blocks(std::min(cut.columns, k.N()));
    return columns * panel + (stay ? rows : std::min(rows, tiles::group_rows)) * columns * f32;
  }
  const int64_t columns = std::min(cut.columns, whole_blocks(k.N()));
  const int64_t sums =
      stay ? rows * columns
           : std::min(rows, tiles::group_rows) * std::min(columns, tiles::shared_columns);
  return rows * panel + sums * f32;
}

// Bytes of what all threads read: right panels of a group of columns, or a.
int64_t shared_bytes(const Matmul& k, const ProductCut& cut) {
  if (cut.way == ProductWay::shared)
    return whole_blocks(std::min(cut.columns, k.N())) * 2 * cut.terms;
  if (cut.way == ProductWay::strips) return 0;
  const int64_t rows = k.M() <= tile_block / 2 ? tile_block / 2 : whole_blocks(k.M());
  return rows * 2 * whole_blocks(k.K());
}

Product product_of(const Matmul& k) {
  return {.M = k.M(),
          .N = k.N(),
          .K = k.K(),
          .a_row = k.a_stride(),
          .b_row = k.b_stride(),
          .c_row = k.c_stride(),
          .alpha = static_cast<float>(k.alpha),
          .a = k.a.as<uint16_t>(),
          .b = k.b.as<uint16_t>(),
          .bias = k.bias.as<uint16_t>(),
          .c = k.c.view.data(),
          .a_transposed = k.a_transposed,
          .b_transposed = k.b_transposed,
          .accumulate = k.c.accumulate,
          .c_is_f32 = k.c.view.dtype() == DType::f32};
}

// A product on its way through a stream's threads.
struct TileUnitProduct {
  const MatmulBatch& all;
  CpuStream& stream;
  const tiles::Kernels& kernels = tiles::kernels_of(stream.tile_unit());
  ProductCut cut{all};
  ProductTasks tasks{all, cut, stream.threads()};
  char* shared = reinterpret_cast<char*>(all.first.workspace.data());
  char* lanes = shared + shared_bytes(all.first, cut);
  int64_t lane_size = lane_bytes(all.first, cut, tasks.rows);

  void multiply_strips() const {
    const int64_t in_one = tasks.row_parts * tasks.column_parts;
    const bool few = ceil_div(tasks.tasks, tasks.together) < stream.threads();
    stream.parallel_for(tasks.tasks, tasks.together, [&](int64_t begin, int64_t end, int lane) {
      char* const memory = lanes + (few ? begin / tasks.together : lane) * lane_size;
      for (int64_t i = begin; i < end; ++i) {
        const Product k = product_of(all.at(i / in_one));
        const int64_t at = i % in_one;
        kernels.multiply_strip(k,
                               {.rows = part(at / tasks.column_parts, tasks.rows, k.M),
                                .columns = part(at % tasks.column_parts, cut.columns, k.N),
                                .part_terms = cut.terms},
                               memory);
      }
    });
  }

  // The sums of a round of strips stay in the lanes from one part of the terms to the next.
  void multiply_shared() const {
    const Product k = product_of(all.first);
    const bool stay = cut.terms < k.K;
    const int64_t round = stay ? tasks.lanes : tasks.row_parts;
    for (int64_t n = 0; n < k.N; n += cut.columns) {
      for (int64_t strip = 0; strip < tasks.row_parts; strip += round) {
        int64_t t = 0;
        do {
          tiles::SharedPart part_of{{}, part(n / cut.columns, cut.columns, k.N), {}};
          part_of.terms = {t, std::min(t + cut.terms, k.K)};
          multiply_round(k, part_of, {strip, std::min(strip + round, tasks.row_parts)}, stay);
          t = part_of.terms.end;
        } while (t < k.K);
      }
    }
  }

  void multiply_round(const Product& k, const tiles::SharedPart& part_of, Interval strips,
                      bool stay) const {
    stream.parallel_for(part_of.terms.size(), 2 * tile_block, [&](int64_t begin, int64_t end) {
      const int64_t first = part_of.terms.begin;
      kernels.pack_shared(k, part_of, {first + begin, first + end}, shared);
    });
    const bool few = strips.size() <= tasks.lanes;
    stream.parallel_for(strips.size(), 1, [&](int64_t i, int64_t, int lane) {
      tiles::SharedPart mine = part_of;
      mine.rows = part(strips.begin + i, tasks.rows, k.M);
      kernels.multiply_shared(k, mine, shared, lanes + (stay || few ? i : lane) * lane_size);
    });
  }

  void multiply_turned() const {
    constexpr int64_t together = 32;  // steps of a that are packed at a time
    const Product k = product_of(all.first);
    stream.parallel_for(ceil_div(k.K, tile_block), together, [&](int64_t begin, int64_t end) {
      kernels.pack_turned(k, {begin * tile_block, std::min(end * tile_block, k.K)}, shared);
    });
    stream.parallel_for(k.N, cut.columns, [&](int64_t begin, int64_t end) {
      kernels.multiply_turned(k, {begin, end}, shared);
    });
  }
};

}  // namespace

bool on_tile_unit(const Matmul& k, const CpuArchitecture& architecture) {
  return k.a.dtype() == DType::bf16 && architecture.bf16_products == Bf16Products::tiles;
}

// As many bytes as for any smaller number of threads, so that a thread more never takes fewer.
size_t tile_unit_workspace(const MatmulBatch& all, const CpuArchitecture& architecture) {
  if (all.first.c.view.numel() == 0) return 0;
  const ProductCut cut(all);
  int64_t lanes = 0;
  for (int threads = 1; threads < 2 * architecture.threads; threads *= 2) {
    const ProductTasks tasks(all, cut, std::min(threads, architecture.threads));
    lanes = std::max(lanes, tasks.lanes * lane_bytes(all.first, cut, tasks.rows));
  }
  return static_cast<size_t>(shared_bytes(all.first, cut) + lanes);
}

void multiply_on_tile_unit(const MatmulBatch& all, CpuStream& stream) {
  const size_t needed = tile_unit_workspace(all, stream.cpu());
  const View& given = all.first.workspace;
  check(needed == 0 || (given && given.nbytes() >= needed),
        "matmul: the workspace is smaller than ", needed, " bytes; launch() takes it");
  const TileUnitProduct product{all, stream};
  switch (product.cut.way) {
    case ProductWay::strips:
      return product.multiply_strips();
    case ProductWay::shared:
      return product.multiply_shared();
    case ProductWay::turned:
      return product.multiply_turned();
  }
}

}  // namespace spool::cpu
