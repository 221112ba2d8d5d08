#pragma once

// How ranks divide the row of parameters (models/optimizers/state_rows.h).
//
// The row is cut into buckets of one size, and each bucket into as many pieces as there are ranks:
// piece p of the row is rank (p mod ranks)'s.  A rank's pieces, one of each bucket, are its own
// row, which is as long on every rank.  A bucket is exchanged together; it has about an eighth of
// the row, at most 4 Mi elements, rounded up to whole granules for each rank.

#include <vector>

#include "spool/autograd/parameter.h"
#include "spool/models/optimizers/buckets.h"
#include "spool/models/optimizers/own_row.h"

namespace spool {

class RowPieces {
 public:
  RowPieces(const std::vector<Parameter*>&, int ranks);

  int ranks() const { return ranks_; }
  int64_t elements() const { return row_.elements(); }
  int64_t piece_elements() const { return row_.bucket_elements(); }
  int64_t buckets() const { return buckets_; }
  // The parts of parameters in a rank's piece of a bucket; `at` is the offset in the piece.
  const std::vector<OwnRow::Slice>& slices(int64_t bucket, int rank) const;
  // The elements of the row that this piece has; fewer than a piece at the row's end.
  Range elements_of(int64_t bucket, int rank) const;
  // What a rank has of all buckets; `at` is the offset in its own row.
  std::vector<OwnRow::Slice> own_slices(int rank) const;

 private:
  int ranks_;
  Buckets row_;  // in pieces
  int64_t buckets_;
  std::vector<std::vector<OwnRow::Slice>> pieces_;
};

}  // namespace spool
