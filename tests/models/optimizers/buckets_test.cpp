// Buckets of tensors for optimizer state on the host.

#include "spool/models/optimizers/buckets.h"

#include "spool/kernels/adamw.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

TEST(Buckets, CoverEveryElementOnceInSlicesThatBeginAtGranules) {
  for (const std::vector<int64_t>& numels :
       {std::vector<int64_t>{1, 5000, 0, 70001, 2048}, {3}, {60'000'000, 7, 2'000'000}}) {
    const Buckets buckets(numels);
    std::vector<int64_t> seen(numels.size());
    int64_t end = 0;
    for (const Buckets::Bucket& bucket : buckets.all()) {
      EXPECT_EQ(bucket.elements.begin, end);
      end = bucket.elements.end;
      EXPECT_LE(bucket.elements.size(), buckets.bucket_elements());
      for (const Buckets::Slice& slice : bucket.slices) {
        EXPECT_EQ(slice.elements.begin, seen[slice.tensor]);
        EXPECT_EQ(slice.elements.begin % AdamW::granule, 0);
        EXPECT_EQ(bucket.elements.begin + slice.at,
                  buckets.begin_of(slice.tensor) + slice.elements.begin);
        EXPECT_LE(slice.at + slice.elements.size(), bucket.elements.size());
        seen[slice.tensor] = slice.elements.end;
      }
    }
    EXPECT_EQ(seen, numels);
    EXPECT_EQ(end, buckets.elements());
    EXPECT_LE(buckets.bucket_elements(), Buckets::max_elements);
  }
}

}  // namespace
}  // namespace spool
