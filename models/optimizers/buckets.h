#pragma once

// Buckets bound the memory of work on many tensors.  Ranges of the row of parameters
// (state_rows.h), one behind the other, are cut into buckets of equal size; the last may be
// smaller.  A bucket has several small tensors, or a slice of a large one.
//
// Parts and buckets both begin at granules, and so does every slice.  A bucket is about an eighth
// of all and at most 4 Mi elements: enough for a copy to run at full speed, few enough that three
// buckets in flight are small beside the model's gradients.  What nothing is copied for is one
// bucket.

#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

class Buckets {
 public:
  static constexpr int64_t max_elements = int64_t{4} << 20;

  // The elements of one part in a bucket.
  struct Slice {
    size_t part = 0;
    Range elements = {};  // of the part's tensor
    int64_t at = 0;       // offset in the bucket
  };
  struct Bucket {
    Range elements = {};  // of all
    std::vector<Slice> slices = {};
  };

  Buckets() = default;
  // Of these elements, each of one tensor.
  explicit Buckets(const std::vector<Range>& parts);
  static Buckets one(const std::vector<Range>& parts);

  // Of all, with the gaps that align the parts.
  int64_t elements() const { return elements_; }
  // Offset of a part in all.
  int64_t begin_of(size_t part) const { return begins_[part]; }
  // Elements of the largest bucket.
  int64_t bucket_elements() const { return bucket_elements_; }
  const std::vector<Bucket>& all() const { return all_; }

 private:
  Buckets(const std::vector<Range>& parts, int64_t count, int64_t max);
  void add_slices(size_t part, Range elements);

  int64_t elements_ = 0, bucket_elements_ = 0;
  std::vector<int64_t> begins_;
  std::vector<Bucket> all_;
};

}  // namespace spool
