#pragma once

// The part of the row of parameters (state_rows.h) whose state an optimizer has and which it
// updates, if that is not all of it: pieces, one after the other, which are the own row.  Each
// begins with slices of parameters, each of those at a granule; the rest of it is padding.  So
// everyone who has as many pieces has as much memory.
//
// The others' pieces are updated elsewhere, and what an update needs of them comes from there.

#include <vector>

#include "spool/runtime/tensor.h"

namespace spool {

class OwnRow {
 public:
  struct Slice {
    size_t parameter = 0;  // of the optimizer's
    Range elements = {};
    int64_t at = 0;  // in the own row
  };

  OwnRow() = default;
  virtual ~OwnRow() = default;
  OwnRow(const OwnRow&) = delete;
  OwnRow& operator=(const OwnRow&) = delete;

  virtual int64_t elements() const = 0;  // of the own row
  virtual const std::vector<Slice>& slices() const = 0;
  // Of elements of one slice; absent if there is none.
  virtual View gradient(size_t parameter, Range elements) const = 0;
  // The squared norms of the others' granules join the own ones, each at its place among those of
  // the whole row.
  virtual void gather_granules(const Tensor& granules) = 0;
  // These elements of the own row are updated, or padding, by what the stream has been given.
  virtual void is_updated(Range elements, Stream& by) = 0;
  // The others' parameters, after an update of all.
  virtual void gather_parameters() = 0;
  virtual void free_gradients() = 0;
};

}  // namespace spool
