#pragma once

// Copies that move elements to other places.
//   StridedCopy: out[out_first + r out_stride + i] (+)= in[in_first + r in_stride + i]
//                for r < rows, i < width: some columns of a matrix, from or to others
//   CopyBlocks:  the same for several blocks in one launch, each of them `times` such rows
//   Permute:     out (+)= in, whose dimensions are in another order: dimension d of out is
//                dimension order[d] of in
// All floating types; out has the type of in or, as a gradient, of its sums.  i32 is copied, but
// not added to.
//
// out shares no memory with in.

#include <array>

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

struct StridedCopy {
  static constexpr const char* name = "strided_copy";
  Grad out;
  View in;
  int64_t rows = 0, width = 0;
  // In elements.  Rows of out do not overlap; those of in may, or be the same one, with stride 0.
  int64_t out_stride = 0, in_stride = 0;
  int64_t out_first = 0, in_first = 0;  // of row 0
  void check_arguments() const;
  Cost cost() const;
};

struct CopyBlocks {
  static constexpr const char* name = "copy_blocks";
  static constexpr int max_blocks = 16;
  // In elements, as in StridedCopy; row 0 of the next time begins a step further.  No element of
  // out is of two rows, of whatever blocks.
  struct Block {
    int64_t times = 1, rows = 0, width = 0;
    int64_t out_step = 0, in_step = 0, out_stride = 0, in_stride = 0;
    int64_t out_first = 0, in_first = 0;
    int64_t elements() const { return times * rows * width; }
  };
  Grad out;
  View in;
  List<Block, max_blocks> blocks = {};
  void check_arguments() const;
  Cost cost() const;
};

struct Permute {
  static constexpr const char* name = "permute";
  Grad out;  // the shape that `order` gives
  View in;
  std::array<int, Shape::max_rank> order{0, 1, 2, 3};  // as many as in has dimensions
  void check_arguments() const;
  Cost cost() const;
};

void run(const StridedCopy&, CpuStream&);
void run(const CopyBlocks&, CpuStream&);
void run(const Permute&, CpuStream&);
void run(const StridedCopy&, CudaStream&);
void run(const CopyBlocks&, CudaStream&);
void run(const Permute&, CudaStream&);

}  // namespace spool
