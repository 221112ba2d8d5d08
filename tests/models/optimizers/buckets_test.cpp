// Buckets of tensors for optimizer state on the host.

#include "spool/models/optimizers/buckets.h"

#include "spool/kernels/weights.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

TEST(Buckets, CoverEveryElementOnceInSlicesThatBeginAtGranules) {
  constexpr int64_t g = weights_granule;
  for (const std::vector<Range>& parts :
       {std::vector<Range>{{0, 1}, {0, 5000}, {0, 0}, {0, 70001}, {0, 2048}},
        {{0, 3}},
        {{2 * g, 5000}, {0, 0}, {5000, 5000}, {30 * g, 70001}, {0, 7}},
        {{0, 60'000'000}, {0, 7}, {0, 2'000'000}}}) {
    const Buckets buckets(parts);
    std::vector<int64_t> seen(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) seen[i] = parts[i].begin;
    int64_t end = 0;
    for (const Buckets::Bucket& bucket : buckets.all()) {
      EXPECT_EQ(bucket.elements.begin, end);
      end = bucket.elements.end;
      EXPECT_LE(bucket.elements.size(), buckets.bucket_elements());
      for (const Buckets::Slice& slice : bucket.slices) {
        EXPECT_EQ(slice.elements.begin, seen[slice.part]);
        EXPECT_EQ(slice.elements.begin % g, 0);
        EXPECT_EQ(bucket.elements.begin + slice.at,
                  buckets.begin_of(slice.part) + slice.elements.begin - parts[slice.part].begin);
        EXPECT_LE(slice.at + slice.elements.size(), bucket.elements.size());
        seen[slice.part] = slice.elements.end;
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(seen[i], parts[i].end);
    EXPECT_EQ(end, buckets.elements());
    EXPECT_LE(buckets.bucket_elements(), Buckets::max_elements);
  }
}

}  // namespace
}  // namespace spool
