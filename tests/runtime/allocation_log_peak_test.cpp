// What is live at an arena's peak, and for which work it was allocated.

#include "spool/runtime/memory/allocation_log.h"

#include "spool/runtime/memory/layout.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t granule = Arena::granule;
constexpr Label a{.name = "a"}, b{.name = "b"}, c{.name = "c", .purpose = Purpose::workspace};

Spec granules(int64_t n) { return {Shape{n * static_cast<int64_t>(granule / sizeof(float))}}; }

// The names of what is live at the peak, by birth.
std::string names(const AllocationLog& log) {
  std::string all;
  for (const LoggedAllocation* live : log.at_peak()) all += live->label.name;
  return all;
}

class LogOfAPeak : public ::testing::Test {
 protected:
  // Sums by purpose are the arena's.
  void expect_sums(const AllocationLog& log) const {
    EnumArray<Purpose, size_t> sums = {};
    for (const LoggedAllocation* live : log.at_peak()) sums[live->label.purpose] += live->bytes;
    EXPECT_EQ(sums, arena.stats().at_peak_by);
  }

  Arena arena{nullptr, 100 * granule, "test"};
};

TEST_F(LogOfAPeak, ListsWhatIsLiveAtThePeakAlsoOnceItIsFreed) {
  const AllocationLog log(arena);
  Arena::Block* const first = arena.allocate(granules(2), a);
  arena.free(arena.allocate(granules(1), b));  // before the peak
  Arena::Block* const last = arena.allocate(granules(3), c);
  EXPECT_EQ(names(log), "ac");
  arena.free(first);
  arena.free(last);
  arena.free(arena.allocate(granules(1), b));  // after it
  EXPECT_EQ(names(log), "ac");
  EXPECT_EQ(log.at_peak()[1]->bytes, 3 * granule);
  EXPECT_EQ(log.at_peak()[1]->spec, granules(3));
  expect_sums(log);
}

TEST_F(LogOfAPeak, ForgetsALowerPeak) {
  const AllocationLog log(arena);
  arena.free(arena.allocate(granules(4), a));
  EXPECT_EQ(names(log), "a");
  Arena::Block* const low = arena.allocate(granules(1), b);
  Arena::Block* const high = arena.allocate(granules(4), c);
  EXPECT_EQ(names(log), "bc");
  expect_sums(log);
  arena.free(high);
  arena.free(low);
}

// The end does not move, but more is live below it.
TEST_F(LogOfAPeak, TakesTheMostLiveBytesBelowTheHighestEnd) {
  const AllocationLog log(arena);
  Arena::Block* const hole = arena.allocate(granules(2), a);
  Arena::Block* const above = arena.allocate(granules(1), b);
  arena.free(hole);
  EXPECT_EQ(names(log), "ab");
  Arena::Block* const part = arena.allocate(granules(1), c);  // in the hole
  EXPECT_EQ(names(log), "ab");
  expect_sums(log);
  arena.free(part);
  arena.free(above);
}

TEST_F(LogOfAPeak, SaysForWhichWorkMemoryWasAllocated) {
  AllocationLog log(arena);
  Arena::Block* const outside = arena.allocate(granules(1), a);
  EXPECT_FALSE(log.enter({.task = "forward", .op = "gelu", .node = 3}));
  Arena::Block* const inside = arena.allocate(granules(1), b);
  EXPECT_EQ(log.enter({}), (TraceContext{.task = "forward", .op = "gelu", .node = 3}));
  const std::vector<const LoggedAllocation*> live = log.at_peak();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_FALSE(live[0]->born_in);
  EXPECT_EQ(live[1]->born_in, (TraceContext{.task = "forward", .op = "gelu", .node = 3}));
  arena.free(inside);
  arena.free(outside);
}

TEST_F(LogOfAPeak, ListsWhatIsPlacedByALayout) {
  const auto step = [&] {
    Arena::Block* const x = arena.allocate(granules(2), a);
    Arena::Block* const y = arena.allocate(granules(1), b);
    arena.free(x);
    Arena::Block* const z = arena.allocate(granules(1), c);
    arena.free(y);
    arena.free(z);
  };
  std::optional<AllocationLog> rehearsed(arena);
  step();
  const std::optional<Layout> layout = Layout{.lifetimes = rehearsed->lifetimes(),
                                              .offsets = {2 * granule, 0, 2 * granule},
                                              .bytes = 4 * granule,
                                              .live = 3 * granule};
  rehearsed.reset();
  const AllocationLog log(arena);
  Arena::Block* const outside = arena.allocate(granules(1), c);
  {
    PlacedStep placed(arena, layout);
    step();
    placed.finish();
  }
  EXPECT_EQ(names(log), "cab");
  expect_sums(log);
  arena.free(outside);
}

// A peak from before the log is no peak of the log's.
TEST_F(LogOfAPeak, IsEmptyBelowAnEarlierPeak) {
  arena.free(arena.allocate(granules(4), a));
  const AllocationLog log(arena);
  arena.free(arena.allocate(granules(3), b));
  EXPECT_EQ(names(log), "");
}

}  // namespace
}  // namespace spool::testing
