// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Buckets bound the memory of work on many tensors.  The tensors' elements, or a part of each, are
// arranged in one row, which is cut into buckets of equal size; the last may be smaller.  A bucket
// has several small tensors, or a slice of a large one.
//
// Parts and buckets both begin at multiples of AdamW::granule, and so does every slice.  A bucket
// is about an eighth of the row and at most 4 Mi elements: enough for a copy to run at full speed,
// few enough that three buckets in flight are small beside the model's gradients.

#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

class Buckets {
 public:
  static constexpr int64_t max_elements = int64_t{4} << 20;

  // The elements of one tensor in a bucket.
  struct Slice {
    size_t tensor = 0;
    Range elements = {};  // of the tensor
    int64_t at = 0;       // offset in the bucket
  };
  struct Bucket {
    Range elements = {};  // of the row
    std::vector<Slice> slices = {};
  };

  // Of these elements of each tensor.
  explicit Buckets(const std::vector<Range>& parts);

  // Length of the row, with the gaps that align the tensors.
  int64_t elements() const { return elements_; }
  // Offset of a tensor's part in the row.
  int64_t begin_of(size_t tensor) const { return begins_[tensor]; }
  // Elements of the largest bucket.
  int64_t bucket_elements() const { return bucket_elements_; }
  const std::vector<Bucket>& all() const { return all_; }

 private:
  void add_slices(size_t tensor, Range part);

  int64_t elements_ = 0, bucket_elements_ = 0;
  std::vector<int64_t> begins_;
  std::vector<Bucket> all_;
};

}  // namespace spool
