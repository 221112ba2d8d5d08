#include "tests/planner/layout_testing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spool::testing {

void expect_apart(const Layout& layout) {
  const std::vector<Lifetime>& all = layout.lifetimes.all;
  ASSERT_EQ(layout.offsets.size(), all.size());
  size_t end = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t i_end = layout.offsets[i] + all[i].bytes;
    end = std::max(end, i_end);
    EXPECT_EQ(layout.offsets[i] % Arena::granule, 0u);
    for (size_t j = 0; j < i; ++j) {
      const bool live_together = all[i].birth < all[j].death && all[j].birth < all[i].death;
      const bool apart =
          i_end <= layout.offsets[j] || layout.offsets[j] + all[j].bytes <= layout.offsets[i];
      EXPECT_TRUE(!live_together || apart) << i << " and " << j;
    }
  }
  EXPECT_EQ(layout.bytes, end);
  EXPECT_GE(layout.bytes, layout.live);
}

double waste(const Layout& layout) {
  return static_cast<double>(layout.bytes) / static_cast<double>(layout.live) - 1;
}

}  // namespace spool::testing
