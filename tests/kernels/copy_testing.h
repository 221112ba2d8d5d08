#pragma once

// Copies to try: shapes and orders that meet every path, and strides that are aligned or not.

#include <vector>

#include "spool/kernels/copy.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct PermuteCase {
  Shape shape;
  std::array<int, Shape::max_rank> order;
};

inline Shape permuted(const PermuteCase& c) {
  Shape shape = c.shape;
  for (int d = 0; d < shape.rank(); ++d) {
    shape = shape.with(d, c.shape[c.order[static_cast<size_t>(d)]]);
  }
  return shape;
}

// Rows of 8 and of other lengths, tiles that are full and not, of packs and not, extents of 1 and
// 0, long and narrow ones, and every position of the dimension that goes to the end.
inline const std::vector<PermuteCase> permute_cases{
    {{7}, {0}},
    {{33, 70}, {1, 0}},
    {{64, 64}, {1, 0}},
    {{72, 136}, {1, 0}},
    {{3, 40, 2, 80}, {0, 2, 3, 1}},
    {{3, 3000}, {1, 0}},
    {{3000, 3}, {1, 0}},
    {{2, 5, 3, 8}, {0, 2, 1, 3}},
    {{2, 5, 3, 7}, {0, 2, 1, 3}},
    {{2, 40, 3, 35}, {0, 2, 3, 1}},
    {{4, 3, 5, 6}, {3, 2, 1, 0}},
    {{4, 3, 5, 6}, {3, 0, 2, 1}},
    {{4, 3, 5, 6}, {2, 3, 1, 0}},
    {{1, 9, 1, 4}, {2, 3, 0, 1}},
    {{5, 1, 6}, {1, 0, 2}},
    {{5, 0, 6}, {2, 1, 0}},
    {{1, 1}, {1, 0}},
};

// Strides and places of rows in tensors of `elements`.
struct RowsCase {
  int64_t rows, width, out_stride, in_stride, out_first, in_first;
  int64_t out_elements() const { return out_first + rows * out_stride + width + 3; }
  int64_t in_elements() const { return in_first + rows * in_stride + width + 5; }
  StridedCopy copy(const Grad& out, const View& in) const {
    return {.out = out,
            .in = in,
            .rows = rows,
            .width = width,
            .out_stride = out_stride,
            .in_stride = in_stride,
            .out_first = out_first,
            .in_first = in_first};
  }
};

inline const std::vector<RowsCase> rows_cases{
    {.rows = 5, .width = 3, .out_stride = 4, .in_stride = 7, .out_first = 2, .in_first = 1},
    {.rows = 40, .width = 8, .out_stride = 8, .in_stride = 24, .out_first = 0, .in_first = 16},
    {.rows = 40, .width = 8, .out_stride = 24, .in_stride = 8, .out_first = 4, .in_first = 0},
    {.rows = 900, .width = 1, .out_stride = 3, .in_stride = 1, .out_first = 0, .in_first = 0},
    {.rows = 3, .width = 20000, .out_stride = 20001, .in_stride = 0, .out_first = 1, .in_first = 0},
    {.rows = 30, .width = 16, .out_stride = 16, .in_stride = 16, .out_first = 8, .in_first = 8},
    {.rows = 1, .width = 40000, .out_stride = 0, .in_stride = 0, .out_first = 1, .in_first = 0},
    {.rows = 0, .width = 4, .out_stride = 4, .in_stride = 4, .out_first = 0, .in_first = 0},
    {.rows = 4, .width = 0, .out_stride = 4, .in_stride = 4, .out_first = 0, .in_first = 0},
};

// Tensors of `out_elements` and `in_elements` with blocks to copy.
struct BlocksCase {
  int64_t out_elements, in_elements;
  List<CopyBlocks::Block, CopyBlocks::max_blocks> blocks;
};

// Three parts of a row, each cut in two, packed by halves: by eights, by single elements, and with
// a part that has none; and one block.
inline BlocksCase halves_of_parts(int64_t rows, const std::vector<int64_t>& parts) {
  BlocksCase c{};
  int64_t row = 0, at = 0;
  for (const int64_t part : parts) row += part;
  for (const int64_t part : parts) {
    c.blocks.add({.times = 2,
                  .rows = rows,
                  .width = part / 2,
                  .out_step = rows * row / 2,
                  .in_step = part / 2,
                  .out_stride = row / 2,
                  .in_stride = row,
                  .out_first = at / 2,
                  .in_first = at});
    at += part;
  }
  c.out_elements = c.in_elements = rows * row;
  return c;
}

inline const std::vector<BlocksCase> blocks_cases{halves_of_parts(40, {384, 128, 128}),
                                                  halves_of_parts(7, {6, 2, 2}),
                                                  halves_of_parts(5, {16, 0, 6}),
                                                  halves_of_parts(1, {40000}),
                                                  {3, 5, {}}};

}  // namespace spool::testing
