#pragma once

// The loops of a copy that puts elements elsewhere (copy.h), as few as will do: dimensions of one
// element are left out, and neighbours that stay together are one.

#include <array>
#include <cstdint>

#include "spool/kernels/copy.h"

namespace spool {

struct CopyLoops {
  struct Loop {
    int64_t extent = 1, out = 0, in = 0;  // strides in elements
  };
  // From the outermost to the innermost; those on the left that are not needed have one element.
  std::array<Loop, 4> loops{};

  explicit CopyLoops(const StridedCopy&);
  explicit CopyLoops(const Permute&);

  const Loop& last() const { return loops[3]; }
  int64_t rows() const { return loops[0].extent * loops[1].extent * loops[2].extent; }
  int64_t elements() const { return rows() * last().extent; }
  // Whether elements next to each other in a row of out are so in in.
  bool keeps_rows() const { return last().extent == 1 || last().in == 1; }
  // Of a copy that does not: the loop over neighbours in `in`.
  size_t neighbours() const;

 private:
  void push(Loop inner);
};

}  // namespace spool
