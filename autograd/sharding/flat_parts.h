#pragma once

// How ranks divide the elements of a parameter that all of them read, whatever its dimensions are,
// so that each stores about as many (ZeRO-3: Rajbhandari et al., ZeRO: Memory Optimizations Toward
// Training Trillion Parameter Models, 2020).
//
// The elements are cut into buckets of one size, at most 4 Mi, and each bucket into a piece for
// each rank, of whole granules (kernels/weights.h).  The last bucket may end in any of its pieces.
// A rank stores its pieces one after another, with room for whole ones, so all store as much.

#include <cstdint>

#include "spool/runtime/shape.h"

namespace spool {

class FlatParts {
 public:
  // Smaller parameters are stored whole: their exchange would be all waiting.
  static constexpr int64_t min_elements = int64_t{64} << 10;

  FlatParts(int64_t elements, int ranks);

  int ranks() const { return ranks_; }
  int64_t buckets() const { return buckets_; }
  int64_t piece_elements() const { return piece_; }
  // What a rank stores, room at its end included.
  int64_t stored() const { return buckets_ * piece_; }
  // Those of the elements that a rank has of a bucket; empty behind the last element.
  Range piece(int64_t bucket, int rank) const;
  // The place of an element among what its rank stores.
  int64_t place_of(int64_t element) const {
    return element / (piece_ * ranks_) * piece_ + element % piece_;
  }

 private:
  int64_t elements_;
  int ranks_;
  int64_t buckets_, piece_;
};

}  // namespace spool
