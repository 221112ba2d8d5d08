#pragma once

// How ranks divide the row of parameters (models/optimizers/state_rows.h).
//
// The row is cut into buckets, and each bucket into as many pieces as there are ranks: one of each
// bucket is a rank's, and these are its own row, which is as long on every rank.  A bucket is
// exchanged together; it has about an eighth of the row, at most 4 Mi elements, rounded up to whole
// granules for each rank.
//
// A parameter that ranks store in flat parts (autograd/sharding/flat_parts.h) has buckets of its
// own, which are those parts, so what a rank updates is what it stores.  The others follow one
// another, as if there were no such parameters.

#include <vector>

#include "spool/autograd/parameter.h"
#include "spool/models/optimizers/buckets.h"
#include "spool/models/optimizers/own_row.h"

namespace spool {

class RowPieces {
 public:
  RowPieces(const std::vector<Parameter*>&, int ranks);

  int ranks() const { return ranks_; }
  int64_t buckets() const { return std::ssize(buckets_); }
  // Elements of the largest piece of any bucket, and those of each piece of one.
  int64_t piece_elements() const { return largest_piece_; }
  int64_t piece_elements(int64_t bucket) const { return of(bucket).piece; }
  // Where a rank's piece of a bucket begins in its own row; of the end, where that ends.
  int64_t begin_of(int64_t bucket) const { return bucket < buckets() ? of(bucket).begin : own_; }
  int64_t own_elements() const { return own_; }
  // The bucket that has an element of the own row.
  int64_t bucket_of(int64_t own_element) const;
  // Whether ranks store no more of it than their pieces.
  bool is_flat(int64_t bucket) const { return of(bucket).is_flat; }
  // The parts of parameters in a rank's piece of a bucket; `at` is the offset in the piece.
  const std::vector<OwnRow::Slice>& slices(int64_t bucket, int rank) const {
    return of(bucket).pieces[static_cast<size_t>(rank)];
  }
  // What a rank has of all buckets; `at` is the offset in its own row.
  std::vector<OwnRow::Slice> own_slices(int rank) const;

 private:
  struct Bucket {
    int64_t begin = 0;  // of its piece in the own row
    int64_t piece = 0;  // elements
    bool is_flat = false;
    std::vector<std::vector<OwnRow::Slice>> pieces = {};  // by rank
  };

  const Bucket& of(int64_t bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  void add_flat(const std::vector<Parameter*>&, size_t parameter);
  void add_together(const std::vector<Parameter*>&, const std::vector<size_t>& some);
  void add(Bucket);

  int ranks_;
  int64_t own_ = 0, largest_piece_ = 0;
  std::vector<Bucket> buckets_ = {};
};

}  // namespace spool
