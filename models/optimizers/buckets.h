#pragma once

// Cuts the elements of many tensors into buckets of equal size, to bound the memory of work on
// them.  The elements are ranges of the row of parameters (state_rows.h), one after the other.  A
// bucket has several small tensors, or a slice of a large one; the last may be smaller.
//
// Parts, buckets and slices all begin at granules.  A bucket is about an eighth of all elements and
// at most 4 Mi of them: enough for a copy to run at full speed, few enough that three buckets in
// flight are small beside the model's gradients.  Where nothing is copied, one bucket has
// everything.

#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

class Buckets {
 public:
  static constexpr int64_t max_elements = int64_t{4} << 20;

  // The elements of one part that are in a bucket.
  struct Slice {
    size_t part = 0;
    Range elements = {};  // of the part's tensor
    int64_t at = 0;       // offset in the bucket
  };
  struct Bucket {
    Range elements = {};  // of all parts together
    std::vector<Slice> slices = {};
  };

  Buckets() = default;
  // Each range is of one tensor.
  explicit Buckets(const std::vector<Range>& parts);
  static Buckets one(const std::vector<Range>& parts);
  // Parts that begin at these elements of so many, in rising order, with gaps that no slice has.
  Buckets(const std::vector<Range>& parts, std::vector<int64_t> begins, int64_t elements,
          int64_t bucket_elements);
  // The same parts in buckets of so many elements, a multiple of a granule.
  static Buckets of_size(const std::vector<Range>& parts, int64_t bucket_elements);
  // Elements of a bucket among so many, unless it is cut further.
  static int64_t usual_size(int64_t elements);

  // Elements of all parts, with the gaps that align them.
  int64_t elements() const { return elements_; }
  // The first element of a part, counted over all.
  int64_t begin_of(size_t part) const { return begins_[part]; }
  // Elements of the largest bucket.
  int64_t bucket_elements() const { return bucket_elements_; }
  const std::vector<Bucket>& all() const { return all_; }

 private:
  void add_slices(size_t part, Range elements);

  int64_t elements_ = 0, bucket_elements_ = 0;
  std::vector<int64_t> begins_;
  std::vector<Bucket> all_;
};

}  // namespace spool
