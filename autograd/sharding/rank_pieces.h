#pragma once

// How a tensor is divided among ranks: each part of one of its dimensions is cut into equal pieces,
// one for each rank.  A rank's piece of the tensor is its piece of each part, one behind another.

#include <vector>

#include "spool/kernels/copy.h"

namespace spool {

struct RankPieces {
  std::vector<int64_t> parts = {};  // lengths along the dimension; none: all elements are one part
  int behind = 0;                   // dimensions after it

  // Whether the pieces lie one after another, by rank.
  bool are_in_order(const Shape& tensor) const;
  // Launch one kernel, which packs the pieces of some ranks out of `ranks` one after another, or
  // puts back those of all.
  void pack(Stream&, const Grad& packed, const View& tensor, Range some, int ranks) const;
  void unpack(Stream&, const Grad& tensor, const View& packed, int ranks) const;

 private:
  using Blocks = std::vector<CopyBlocks::Block>;
  // Out of the tensor into pieces.
  Blocks blocks(const Shape& tensor, Range some, int ranks) const;
};

}  // namespace spool
