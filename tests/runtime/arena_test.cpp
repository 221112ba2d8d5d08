// The arena: where it places blocks, its peak, and the error when it is full.

#include "spool/runtime/memory/arena.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

Spec bytes_spec(int64_t bytes) { return {Shape{bytes / 4}, DType::f32}; }

TEST(Arena, RoundsToGranulesAndReusesTheBestFit) {
  Arena arena(nullptr, 1 << 20, "test");
  Arena::Block* a = arena.allocate(bytes_spec(4096), {});
  Arena::Block* b = arena.allocate(bytes_spec(4), {});
  Arena::Block* c = arena.allocate(bytes_spec(1024), {});
  Arena::Block* d = arena.allocate(bytes_spec(512), {});
  EXPECT_EQ(arena.stats().live, 4096u + 512 + 1024 + 512);
  const std::byte* small = arena.address(c);
  arena.free(a);
  arena.free(c);
  EXPECT_EQ(arena.address(arena.allocate(bytes_spec(1024), {})), small);
  EXPECT_EQ(arena.stats().peak, 4096u + 512 + 1024 + 512);
  arena.free(b);
  arena.free(d);
}

TEST(Arena, MergesAFreedBlockWithFreeNeighboursAndTheTail) {
  Arena arena(nullptr, 4096, "test");
  std::vector<Arena::Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(arena.allocate(bytes_spec(512), {}));
  for (int i : {1, 3, 2, 0}) arena.free(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(arena.stats().live, 0u);
  Arena::Block* all = arena.allocate(bytes_spec(4096), {});
  EXPECT_EQ(arena.address(all), nullptr);
  EXPECT_EQ(arena.stats().peak, 4096u);
  arena.free(all);
}

// The same random calls in an arena without bounds, and in one of exactly the first one's peak.
TEST(Arena, ItsPeakIsTheSmallestCapacityThatSuffices) {
  const auto play = [](Arena& arena) {
    Random random(5);
    std::vector<Arena::Block*> live;
    std::vector<const std::byte*> addresses;
    for (int i = 0; i < 3000; ++i) {
      if (live.size() > 40 || (!live.empty() && random.uniform() < 0.4)) {
        const size_t at = random.next() % live.size();
        arena.free(live[at]);
        live.erase(live.begin() + static_cast<int64_t>(at));
      } else {
        live.push_back(arena.allocate(bytes_spec(4 * (1 + random.next() % 5000)), {}));
        addresses.push_back(arena.address(live.back()));
      }
    }
    for (Arena::Block* b : live) arena.free(b);
    return addresses;
  };
  Arena unlimited(nullptr, size_t{1} << 40, "test");
  const auto addresses = play(unlimited);
  Arena exact(nullptr, unlimited.stats().peak, "test");
  EXPECT_EQ(play(exact), addresses);
  Arena tight(nullptr, unlimited.stats().peak - Arena::granule, "test");
  expect_error(ErrorKind::memory, {"test: "}, [&] { play(tight); });
}

// Placement depends on live blocks, not on earlier ones.
TEST(Arena, PlacesEveryStepAsTheFirst) {
  Arena arena(nullptr, size_t{1} << 40, "test");
  const auto kept = arena.allocate(bytes_spec(5000), {});
  const auto step = [&] {
    Random random(9);
    std::vector<Arena::Block*> live;
    std::vector<const std::byte*> addresses;
    for (int i = 0; i < 500; ++i) {
      live.push_back(arena.allocate(bytes_spec(4 * (1 + random.next() % 9000)), {}));
      addresses.push_back(arena.address(live.back()));
      if (i % 3 == 2) {
        const size_t at = random.next() % live.size();
        arena.free(live[at]);
        live.erase(live.begin() + static_cast<int64_t>(at));
      }
    }
    for (Arena::Block* b : live) arena.free(b);
    return addresses;
  };
  const auto first = step();
  const size_t peak = arena.stats().peak;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(), first);
  EXPECT_EQ(arena.stats().peak, peak);
  arena.free(kept);
}

TEST(Arena, CountsItsPeakAgainFromATimeWithTheSameBlocks) {
  Arena arena(nullptr, size_t{1} << 20, "cpu");
  const Label parameter{.name = "w", .purpose = Purpose::parameter};
  const Label activation{.name = "x", .purpose = Purpose::activation};
  Arena::Block* const kept = arena.allocate(bytes_spec(1024), parameter);
  const MemoryStats then = arena.stats();
  const auto work = [&](int64_t bytes) {
    Arena::Block* const block = arena.allocate(bytes_spec(bytes), activation);
    EXPECT_FALSE(arena.count_again_from(then));
    arena.free(block);
    return arena.stats().peak;
  };
  EXPECT_EQ(work(8192), 9216U);
  EXPECT_TRUE(arena.count_again_from(then));
  EXPECT_EQ(arena.stats().peak, then.peak);
  EXPECT_EQ(work(4096), 5120U);
  EXPECT_EQ(arena.stats().at_peak_by[Purpose::activation], 4096U);
  arena.free(kept);
  EXPECT_FALSE(arena.count_again_from(then));
}

TEST(Arena, ItsErrorNamesTheTensorWhatIsLiveAndWhatWouldSuffice) {
  Arena arena(nullptr, 10240, "cpu");
  arena.allocate(bytes_spec(8192), {.name = "wte.weight", .purpose = Purpose::parameter});
  const ErrorFields fields =
      expect_error(ErrorKind::memory, {"logits", "wte.weight", "parameters 8.00 KiB", "12288"},
                   [&] { arena.allocate(bytes_spec(4096), {.name = "logits"}); });
  EXPECT_EQ(fields.needed, 12288u);
  EXPECT_EQ(fields.capacity, 10240u);
  EXPECT_EQ(fields.op, "logits");
}

}  // namespace
}  // namespace spool::testing
