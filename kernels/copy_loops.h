#pragma once

// The fewest nested loops that carry out a copy of copy.h: dimensions of one element are left out,
// and dimensions that stay neighbours are merged.

#include <array>
#include <cstdint>

#include "spool/kernels/copy.h"

namespace spool {

struct CopyLoops {
  struct Loop {
    int64_t extent = 1, out = 0, in = 0;  // strides in elements
  };
  // From the outermost to the innermost; unused ones come first and have one element.
  std::array<Loop, 4> loops{};

  explicit CopyLoops(const StridedCopy&);
  explicit CopyLoops(const CopyBlocks::Block&);
  explicit CopyLoops(const Permute&);

  const Loop& last() const { return loops[3]; }
  int64_t rows() const { return loops[0].extent * loops[1].extent * loops[2].extent; }
  int64_t elements() const { return rows() * last().extent; }
  // Whether neighbours in a row of `out` are neighbours in `in`.
  bool keeps_rows() const { return last().extent == 1 || last().in == 1; }
  // If they are not: the loop that runs over neighbours in `in`.
  size_t neighbours() const;

 private:
  void push(Loop inner);
};

}  // namespace spool
