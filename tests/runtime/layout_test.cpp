// Memory placed in advance: every allocation goes to its offset, and a step that differs from its
// rehearsal is refused before two tensors share a place.

#include "spool/runtime/memory/layout.h"

#include "spool/runtime/memory/allocation_log.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t granule = Arena::granule;
constexpr Label first{.name = "first"}, second{.name = "second"}, third{.name = "third"};

Spec granules(int64_t n) { return {Shape{n * static_cast<int64_t>(granule / sizeof(float))}}; }

Layout layout_of(Lifetimes lifetimes, std::vector<size_t> offsets_in_granules,
                 size_t granules_in_all) {
  for (size_t& offset : offsets_in_granules) offset *= granule;
  return {.lifetimes = std::move(lifetimes),
          .offsets = std::move(offsets_in_granules),
          .bytes = granules_in_all * granule,
          .live = granules_in_all * granule};
}

// Three allocations: the first two are live together, then the last two.
class PlacedStepTest : public ::testing::Test {
 protected:
  PlacedStepTest() : outside_(arena.allocate(granules(3), {.name = "outside"})) {
    const AllocationLog log(arena);
    step();
    layout = layout_of(log.lifetimes(), {0, 2, 0}, 3);
    before = arena.stats();
  }
  // After each test the arena is as it was, and takes a step without and with the layout.
  ~PlacedStepTest() override {
    EXPECT_EQ(arena.stats().live, before.live);
    EXPECT_EQ(arena.stats().live_by, before.live_by);
    EXPECT_EQ(arena.stats().live_hash, before.live_hash);
    step();
    PlacedStep placed(arena, layout);
    step();
    placed.finish();
    arena.free(outside_);
    EXPECT_EQ(arena.stats().live, 0u);
  }

  void step() {
    Arena::Block* a = arena.allocate(granules(2), first);
    Arena::Block* b = arena.allocate(granules(1), second);
    arena.free(a);
    Arena::Block* c = arena.allocate(granules(2), third);
    arena.free(b);
    arena.free(c);
  }
  // Expects an error where a placed step makes these allocations and frees none.
  void expect_refused(std::initializer_list<std::string_view> words,
                      const std::vector<std::pair<Spec, Label>>& all, int line = __builtin_LINE()) {
    std::vector<Arena::Block*> blocks;
    const auto work = [&] {
      PlacedStep placed(arena, layout);
      for (const auto& [spec, label] : all) blocks.push_back(arena.allocate(spec, label));
      placed.finish();
    };
    expect_error(ErrorKind::invalid, words, work, __FILE__, line);
    for (Arena::Block* b : blocks) arena.free(b);
  }

  Arena arena{nullptr, size_t{1} << 20, "test"};
  std::optional<Layout> layout;
  MemoryStats before;

 private:
  Arena::Block* outside_;
};

TEST_F(PlacedStepTest, PutsEveryAllocationAtItsOffset) {
  PlacedStep placed(arena, layout);
  Arena::Block* a = arena.allocate(granules(2), first);
  Arena::Block* b = arena.allocate(granules(1), second);
  const auto offset = [&](Arena::Block* block) {
    return reinterpret_cast<uintptr_t>(arena.address(block)) - 3 * granule;
  };
  EXPECT_EQ(offset(a), layout->offsets[0]);
  EXPECT_EQ(offset(b), layout->offsets[1]);
  EXPECT_EQ(arena.stats().live, 6 * granule);
  EXPECT_EQ(arena.stats().peak, 6 * granule);
  arena.free(a);
  Arena::Block* c = arena.allocate(granules(2), third);
  EXPECT_EQ(offset(c), layout->offsets[2]);
  arena.free(b);
  arena.free(c);
  placed.finish();
}

TEST_F(PlacedStepTest, RefusesAnotherSizeNameOrPurpose) {
  expect_refused({"allocation 1 of phase 0", "second (activations), 4608 bytes",
                  "second (activations), 512 bytes"},
                 {{granules(2), first}, {granules(9), second}});
  expect_refused({"allocation 0 of phase 0", "third", "first"}, {{granules(2), third}});
  const Label other{.name = "first", .purpose = Purpose::gradient};
  expect_refused({"first (gradients)"}, {{granules(2), other}});
}

TEST_F(PlacedStepTest, RefusesTooManyAndTooFewAllocations) {
  expect_refused({"allocation 1 of phase 0", "second (activations), 512 bytes"},
                 {{granules(2), first}});
  expect_error(ErrorKind::invalid, {"allocation 3 of phase 0", "second", "more than"}, [&] {
    PlacedStep placed(arena, layout);
    step();
    arena.allocate(granules(1), second);
  });
}

TEST_F(PlacedStepTest, NeverPlacesAnAllocationOnALiveOne) {
  expect_refused({"allocation 2 of phase 0", "third", "first (f32 (256))"},
                 {{granules(2), first}, {granules(1), second}, {granules(2), third}});
}

TEST_F(PlacedStepTest, ABlockThatOutlivesTheStepIsRefusedAndKeepsItsPlace) {
  Arena::Block* kept = nullptr;
  expect_error(ErrorKind::invalid, {"third", "when the step ends"}, [&] {
    PlacedStep placed(arena, layout);
    arena.free(arena.allocate(granules(2), first));
    arena.free(arena.allocate(granules(1), second));
    kept = arena.allocate(granules(2), third);
    placed.finish();
  });
  Arena::Block* other = arena.allocate(granules(3), first);
  EXPECT_GE(arena.address(other), arena.address(kept) + 2 * granule);
  arena.free(other);
  arena.free(kept);
}

Lifetimes two_allocations() {
  return {.all = {{.bytes = 2 * granule, .label = first, .birth = 0, .death = 1},
                  {.bytes = 2 * granule, .label = first, .birth = 2, .death = 3}},
          .phases = {{.begin = 0, .end = 2}}};
}

// The live block begins before, at and after the other.
TEST(PlacedStep, RefusesAPartialOverlapWithALiveBlock) {
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1}, {1, 1}, {2, 1}, {1, 0}}) {
    Arena arena(nullptr, size_t{1} << 20, "test");
    const std::optional<Layout> layout = layout_of(two_allocations(), {a, b}, 4);
    PlacedStep placed(arena, layout);
    Arena::Block* live = arena.allocate(granules(2), first);
    expect_error(ErrorKind::invalid, {"allocation 1 of phase 0", "first"},
                 [&] { arena.allocate(granules(2), first); });
    arena.free(live);
    arena.free(arena.allocate(granules(2), first));
    placed.finish();
  }
}

TEST(PlacedStep, RefusesALayoutThatDoesNotFit) {
  Arena arena(nullptr, 2 * granule, "test");
  const std::optional<Layout> layout = layout_of(two_allocations(), {0, 1}, 3);
  expect_error(ErrorKind::memory, {"layout"}, [&] { PlacedStep(arena, layout); });
  EXPECT_EQ(arena.stats().live, 0u);
  Arena::Block* whole = arena.allocate(granules(2), first);
  arena.free(whole);
}

TEST(PlacedStep, PhasesMayBeLeftOutOrRepeated) {
  Arena arena(nullptr, size_t{1} << 20, "test");
  const auto step = [&](int middles) {
    arena.begin_phase(0);
    Arena::Block* across = arena.allocate(granules(2), first);
    for (int i = 0; i < middles; ++i) {
      arena.begin_phase(1);
      arena.free(arena.allocate(granules(1), second));
    }
    arena.begin_phase(2);
    Arena::Block* last = arena.allocate(granules(3), third);
    arena.free(across);
    arena.free(last);
  };
  const AllocationLog log(arena);
  step(1);
  const std::optional<Layout> layout = layout_of(log.lifetimes(), {0, 2, 2}, 5);
  for (const int middles : {0, 1, 5}) {
    PlacedStep placed(arena, layout);
    step(middles);
    placed.finish();
  }
  EXPECT_EQ(arena.stats().peak, 5 * granule);
  EXPECT_EQ(arena.stats().live, 0u);
}

TEST(Lifetimes, CountBirthsAndDeaths) {
  Arena arena(nullptr, size_t{1} << 20, "test");
  const AllocationLog log(arena);
  Arena::Block* a = arena.allocate(granules(2), first);
  Arena::Block* b = arena.allocate(granules(1), second);
  arena.free(a);
  arena.free(b);
  const Lifetimes lifetimes = log.lifetimes();
  ASSERT_EQ(lifetimes.all.size(), 2u);
  EXPECT_EQ(lifetimes.all[0].bytes, 2 * granule);
  EXPECT_EQ(std::pair(lifetimes.all[0].birth, lifetimes.all[0].death), std::pair(0ul, 2ul));
  EXPECT_EQ(std::pair(lifetimes.all[1].birth, lifetimes.all[1].death), std::pair(1ul, 3ul));
}

TEST(Lifetimes, RefuseABlockThatIsStillLive) {
  Arena arena(nullptr, size_t{1} << 20, "test");
  const AllocationLog log(arena);
  Arena::Block* block = arena.allocate(granules(1), second);
  expect_error(ErrorKind::invalid, {"second (activations)"}, [&] { log.lifetimes(); });
  arena.free(block);
}

}  // namespace
}  // namespace spool::testing
