#pragma once

// The elements of many tensors laid out as one row and cut into buckets of equal size, the last
// but for what is left, so that work on all of them takes bounded memory: a bucket holds several
// small tensors, or a slice of a large one.
//
// Tensors and buckets both begin at multiples of AdamW::granule, and so does every slice.  A bucket
// is about an eighth of the whole, and at most 4 Mi elements: enough for a copy to run at full
// speed, few enough that three in flight are small beside the gradients of the model.

#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

class Buckets {
 public:
  static constexpr int64_t max_elements = int64_t{4} << 20;

  // What a bucket has of a tensor.
  struct Slice {
    size_t tensor = 0;
    Range elements = {};  // of the tensor
    int64_t at = 0;       // of the bucket
  };
  struct Bucket {
    Range elements = {};  // of the row
    std::vector<Slice> slices = {};
  };

  explicit Buckets(const std::vector<int64_t>& numels);

  // Of the row, with what aligns the tensors.
  int64_t elements() const { return elements_; }
  // Where in the row a tensor begins.
  int64_t begin_of(size_t tensor) const { return begins_[tensor]; }
  // Of the largest bucket.
  int64_t bucket_elements() const { return bucket_elements_; }
  const std::vector<Bucket>& all() const { return all_; }

 private:
  void add(size_t tensor, int64_t numel);

  int64_t elements_ = 0, bucket_elements_ = 0;
  std::vector<int64_t> begins_;
  std::vector<Bucket> all_;
};

}  // namespace spool
