// runs: numbers
// Offsets for allocations with known lifetimes: live ones never overlap, and little is wasted.

#include "spool/planner/offsets.h"

#include <algorithm>
#include <limits>

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

// A training step of equal layers.  Forward keeps a value of each layer; backward frees it, and
// computes gradients, which live until the end, and values that only one op reads.  Every third
// layer also keeps a second value, which the others recompute.
Lifetimes step_of_layers(size_t layers) {
  std::vector<Allocation> all;
  std::vector<size_t> kept, second, gradients;
  size_t time = 0;
  const auto allocate = [&](size_t granules) {
    all.push_back({granules, time++, 0});
    return all.size() - 1;
  };
  const auto free = [&](size_t i) { all[i].death = time++; };
  for (size_t i = 0; i < layers; ++i) {
    const size_t input = allocate(12);
    second.push_back(allocate(48));
    const size_t workspace = allocate(7);
    kept.push_back(allocate(12));
    free(workspace);
    free(input);
    if (i % 3 != 0) free(second.back());
  }
  size_t flow = allocate(12);
  for (size_t i = layers; i-- > 0;) {
    if (i % 3 != 0) second[i] = allocate(48);
    const size_t wide = allocate(48);
    gradients.push_back(allocate(9));
    free(flow);
    flow = allocate(12);
    gradients.push_back(allocate(5));
    free(second[i]);
    free(wide);
    free(kept[i]);
  }
  free(flow);
  for (const size_t i : gradients) free(i);
  return lifetimes(all);
}

TEST(Offsets, OfEqualLayersTakeNoMoreThanIsLive) {
  for (const size_t layers : {1, 2, 3, 7, 12, 24, 48}) {
    const Layout layout = assign_offsets(step_of_layers(layers));
    expect_apart(layout);
    EXPECT_EQ(layout.bytes, layout.live) << layers << " layers";
  }
}

TEST(Offsets, StopAtWhatIsEnough) {
  int not_smallest = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Lifetimes random = random_lifetimes(seed, 60);
    const size_t enough = max_live(random) / 10 * 11;
    const Layout layout = assign_offsets(random, enough);
    expect_apart(layout);
    EXPECT_LE(layout.bytes, enough) << "seed " << seed;
    EXPECT_EQ(layout.live, max_live(random));
    not_smallest += assign_offsets(random).bytes < layout.bytes;
    EXPECT_LT(waste(assign_offsets(random, std::numeric_limits<size_t>::max())), 0.2)
        << "seed " << seed;
  }
  EXPECT_GT(not_smallest, 0);
}

TEST(Offsets, ForTooFewBytesEqualThoseWithoutALimit) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Lifetimes random = random_lifetimes(seed, 60);
    EXPECT_EQ(assign_offsets(random, max_live(random) - 1).offsets, assign_offsets(random).offsets);
  }
}

// No order of thousands of blocks that never nest comes near the maximum of live bytes.
TEST(Offsets, EndAfterALimitedNumberOfSteps) {
  const Lifetimes random = random_lifetimes(1, 2000);
  const Layout layout = assign_offsets(random, max_live(random));
  expect_apart(layout);
  EXPECT_LT(waste(layout), 0.2);
}

}  // namespace
}  // namespace spool::testing
