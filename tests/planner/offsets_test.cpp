// runs: numbers
// Offsets for allocations with known lifetimes: live ones never overlap, and little is wasted.

#include "spool/planner/offsets.h"

#include <algorithm>

#include "tests/planner/layout_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t granule = Arena::granule;

struct Allocation {
  size_t granules, birth, death;
};

Lifetimes lifetimes(const std::vector<Allocation>& all) {
  Lifetimes out;
  for (const auto& [granules, birth, death] : all) {
    out.all.push_back({.bytes = granules * granule, .birth = birth, .death = death});
  }
  out.phases = {{.begin = 0, .end = all.size()}};
  return out;
}

// Births and deaths are all different.
Lifetimes random_lifetimes(uint64_t seed, size_t count) {
  Random random(seed, 1);
  std::vector<size_t> times(2 * count);
  for (size_t i = 0; i < times.size(); ++i) times[i] = i;
  for (size_t i = times.size(); i-- > 1;) std::swap(times[i], times[random.next() % (i + 1)]);
  std::vector<Allocation> all;
  for (size_t i = 0; i < count; ++i) {
    const auto [birth, death] = std::minmax(times[2 * i], times[2 * i + 1]);
    all.push_back({1 + random.next() % 40, birth, death});
  }
  std::ranges::sort(all, {}, &Allocation::birth);
  return lifetimes(all);
}

TEST(Offsets, LiveAllocationsNeverOverlap) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    expect_apart(assign_offsets(random_lifetimes(seed, 1 + seed % 60)));
  }
}

TEST(Offsets, AreTheSameForTheSameLifetimes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Lifetimes random = random_lifetimes(seed, 1 + seed % 60);
    const Layout layout = assign_offsets(random), again = assign_offsets(random);
    EXPECT_EQ(again.offsets, layout.offsets);
    EXPECT_EQ(again.bytes, layout.bytes);
  }
}

TEST(Offsets, KnownCasesAreOptimal) {
  const auto bytes = [](const std::vector<Allocation>& all) {
    return assign_offsets(lifetimes(all)).bytes;
  };
  EXPECT_EQ(bytes({}), 0u);
  EXPECT_EQ(bytes({{3, 0, 1}}), 3 * granule);
  // One after the other, and a stack.
  EXPECT_EQ(bytes({{3, 0, 1}, {5, 2, 3}, {4, 4, 5}}), 5 * granule);
  EXPECT_EQ(bytes({{3, 0, 5}, {5, 1, 4}, {4, 2, 3}}), 12 * granule);
  // Best fit fails here: a small block that stays takes the hole that a larger one will need.
  EXPECT_EQ(bytes({{4, 0, 2}, {4, 1, 9}, {1, 3, 8}, {7, 4, 7}, {0, 5, 6}}), 12 * granule);
}

}  // namespace
}  // namespace spool::testing
