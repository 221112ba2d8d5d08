// What is live at an arena's peak, and for which work it was allocated.

#include "spool/runtime/memory/peak_recorder.h"

#include "spool/runtime/memory/layout.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t granule = Arena::granule;
constexpr Label a{.name = "a"}, b{.name = "b"}, c{.name = "c", .purpose = Purpose::workspace};

Spec granules(int64_t n) { return {Shape{n * static_cast<int64_t>(granule / sizeof(float))}}; }

// The names of what is live at the peak, by birth.
std::string names(const PeakRecorder& recorder) {
  std::string all;
  for (const PeakAllocation& live : recorder.at_peak()) all += live.label.name;
  return all;
}

class PeakRecorderTest : public ::testing::Test {
 protected:
  // Sums by purpose are the arena's.
  void expect_sums(const PeakRecorder& recorder) const {
    EnumArray<Purpose, size_t> sums = {};
    for (const PeakAllocation& live : recorder.at_peak()) sums[live.label.purpose] += live.bytes;
    EXPECT_EQ(sums, arena.stats().at_peak_by);
  }

  Arena arena{nullptr, 100 * granule, "test"};
};

TEST_F(PeakRecorderTest, ListsWhatIsLiveAtThePeakAlsoOnceItIsFreed) {
  const PeakRecorder recorder(arena);
  Arena::Block* const first = arena.allocate(granules(2), a);
  arena.free(arena.allocate(granules(1), b));  // before the peak
  Arena::Block* const last = arena.allocate(granules(3), c);
  EXPECT_EQ(names(recorder), "ac");
  arena.free(first);
  arena.free(last);
  arena.free(arena.allocate(granules(1), b));  // after it
  EXPECT_EQ(names(recorder), "ac");
  EXPECT_EQ(recorder.at_peak()[1].bytes, 3 * granule);
  EXPECT_EQ(recorder.at_peak()[1].spec, granules(3));
  expect_sums(recorder);
}

TEST_F(PeakRecorderTest, ForgetsALowerPeak) {
  const PeakRecorder recorder(arena);
  arena.free(arena.allocate(granules(4), a));
  EXPECT_EQ(names(recorder), "a");
  Arena::Block* const low = arena.allocate(granules(1), b);
  Arena::Block* const high = arena.allocate(granules(4), c);
  EXPECT_EQ(names(recorder), "bc");
  expect_sums(recorder);
  arena.free(high);
  arena.free(low);
}

// The end does not move, but more is live below it.
TEST_F(PeakRecorderTest, TakesTheMostLiveBytesBelowTheHighestEnd) {
  const PeakRecorder recorder(arena);
  Arena::Block* const hole = arena.allocate(granules(2), a);
  Arena::Block* const above = arena.allocate(granules(1), b);
  arena.free(hole);
  EXPECT_EQ(names(recorder), "ab");
  Arena::Block* const part = arena.allocate(granules(1), c);  // in the hole
  EXPECT_EQ(names(recorder), "ab");
  expect_sums(recorder);
  arena.free(part);
  arena.free(above);
}

TEST_F(PeakRecorderTest, SaysForWhichWorkMemoryWasAllocated) {
  PeakRecorder recorder(arena);
  Arena::Block* const outside = arena.allocate(granules(1), a);
  EXPECT_FALSE(recorder.enter({.task = "forward", .op = "gelu", .node = 3}));
  Arena::Block* const inside = arena.allocate(granules(1), b);
  EXPECT_EQ(recorder.enter({}), (TraceContext{.task = "forward", .op = "gelu", .node = 3}));
  const std::vector<PeakAllocation> live = recorder.at_peak();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_FALSE(live[0].work);
  EXPECT_EQ(live[1].work, (TraceContext{.task = "forward", .op = "gelu", .node = 3}));
  arena.free(inside);
  arena.free(outside);
}

TEST_F(PeakRecorderTest, ListsWhatIsPlacedByALayout) {
  const auto step = [&] {
    Arena::Block* const x = arena.allocate(granules(2), a);
    Arena::Block* const y = arena.allocate(granules(1), b);
    arena.free(x);
    Arena::Block* const z = arena.allocate(granules(1), c);
    arena.free(y);
    arena.free(z);
  };
  LifetimeRecorder lifetimes(arena);
  step();
  const std::optional<Layout> layout = Layout{.lifetimes = lifetimes.finish(),
                                              .offsets = {2 * granule, 0, 2 * granule},
                                              .bytes = 4 * granule,
                                              .live = 3 * granule};
  const PeakRecorder recorder(arena);
  Arena::Block* const outside = arena.allocate(granules(1), c);
  {
    PlacedStep placed(arena, layout);
    step();
    placed.finish();
  }
  EXPECT_EQ(names(recorder), "cab");
  expect_sums(recorder);
  arena.free(outside);
}

TEST_F(PeakRecorderTest, IsTheOnlyOneOfItsArena) {
  {
    const PeakRecorder recorder(arena);
    expect_error(ErrorKind::invalid, {"peak", "already"}, [&] { PeakRecorder second(arena); });
  }
  const PeakRecorder next(arena);
}

}  // namespace
}  // namespace spool::testing
