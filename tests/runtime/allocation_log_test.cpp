// An AllocationLog: births, deaths and copies in order, with their times and their work.

#include "spool/runtime/memory/allocation_log.h"

#include <gtest/gtest.h>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr TraceContext forward{.task = "forward", .op = "linear", .node = 3};
constexpr TraceContext backward{.task = "backward", .op = "linear", .node = 3};
constexpr TraceContext copy{.task = "linear", .node = 7};

class LoggedArena : public ::testing::Test {
 protected:
  Arena::Block* allocate(size_t bytes, Name name) {
    return arena_.allocate({Shape{static_cast<int64_t>(bytes)}, DType::i8}, {.name = name});
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(8 * Arena::granule);
  Arena arena_{memory_.data(), memory_.size(), "test"};
  double now_ = 0;
  Trace trace_;
};

TEST_F(LoggedArena, HasEveryEventWithItsTimeAndWork) {
  Arena::Block* const before = allocate(1, "before");
  AllocationLog log(
      arena_, [this] { return now_; }, &trace_);
  log.enter(forward);
  Arena::Block* const a = allocate(Arena::granule + 1, "a");
  now_ = 1;
  log.enter(backward);
  trace_.enter(copy);
  Arena::Block* const b = allocate(1, "b");
  log.record_offloaded(arena_.address(a) + Arena::granule, 7);
  log.record_offloaded(arena_.address(a), 8);
  trace_.enter({});
  log.enter({});
  now_ = 2;
  arena_.free(a);
  arena_.free(before);
  EXPECT_EQ(log.events(), 4u);
  const AllocationHistory& history = log.history();
  EXPECT_EQ(history.times, (std::vector<double>{0, 1, 1, 2}));
  ASSERT_EQ(history.all.size(), 2u);
  const LoggedAllocation& first = history.all[0];
  EXPECT_EQ(first.label.name, "a");
  EXPECT_EQ(first.bytes, 2 * Arena::granule);
  EXPECT_EQ(first.birth, 0u);
  EXPECT_EQ(first.offloaded, 2u);
  EXPECT_EQ(first.transfer, 7u);
  EXPECT_EQ(first.fetched, -1);
  EXPECT_EQ(first.death, 3u);
  EXPECT_EQ(first.born_in, forward);
  EXPECT_EQ(first.died_in, forward);  // the last work outside of copies
  EXPECT_EQ(history.all[1].death, LoggedAllocation::never);
  EXPECT_EQ(history.all[1].born_in, backward);
  EXPECT_EQ(history.all[1].fetched, 7);
  arena_.free(b);
}

TEST_F(LoggedArena, KnowsTheRowsThatStay) {
  AllocationLog log(arena_);
  Arena::Block* const a = allocate(1, "a");
  Arena::Block* const b = allocate(1, "b");
  log.record_rest(arena_.address(b), 7);
  EXPECT_FALSE(log.history().all[0].is_rest);
  EXPECT_TRUE(log.history().all[1].is_rest);
  EXPECT_EQ(log.history().all[1].transfer, 7u);
  EXPECT_EQ(log.history().all[1].offloaded, LoggedAllocation::never);
  EXPECT_TRUE(log.history().times.empty());
  arena_.free(a);
  arena_.free(b);
}

// What is at the address now, not what was there before.
TEST_F(LoggedArena, FindsTheLiveAllocationOfAnAddress) {
  AllocationLog log(arena_);
  Arena::Block* const a = allocate(1, "a");
  arena_.free(allocate(1, "gone"));
  Arena::Block* const b = allocate(1, "b");
  arena_.free(allocate(1, "gone"));
  log.record_offloaded(arena_.address(a), 1);
  log.record_offloaded(arena_.address(b), 2);
  log.record_offloaded(arena_.address(b) + Arena::granule, 3);  // free
  std::vector<uint64_t> transfers;
  for (const LoggedAllocation& l : log.history().all) transfers.push_back(l.transfer);
  EXPECT_EQ(transfers, (std::vector<uint64_t>{1, 0, 2, 0}));
  arena_.free(b);
  arena_.free(a);
}

TEST_F(LoggedArena, HasOneLogAtATime) {
  std::optional<AllocationLog> log(arena_);
  EXPECT_EQ(arena_.log(), &*log);
  expect_error(ErrorKind::invalid, {"has a log already"}, [&] { AllocationLog second(arena_); });
  EXPECT_EQ(arena_.log(), &*log);
  log.reset();
  EXPECT_EQ(arena_.log(), nullptr);
}

TEST_F(LoggedArena, LeavesOutWhatAnEarlierLogHas) {
  std::optional<AllocationLog> first(arena_);
  Arena::Block* const a = allocate(1, "a");
  first.reset();
  Arena::Block* const between = allocate(1, "between");
  const AllocationLog second(arena_);
  Arena::Block* const b = allocate(1, "b");
  arena_.free(a);
  arena_.free(between);
  arena_.free(b);
  ASSERT_EQ(second.history().all.size(), 1u);
  EXPECT_EQ(second.history().all[0].label.name, "b");
  EXPECT_EQ(second.history().all[0].death, 1u);
}

// One log, three readers.
TEST_F(LoggedArena, HasLifetimesSinceAnEvent) {
  AllocationLog log(arena_);
  Arena::Block* const before = allocate(1, "before");
  const size_t since = log.events();
  Arena::Block* const a = allocate(1, "a");
  log.record_offloaded(arena_.address(a), 1);
  Arena::Block* const b = allocate(1, "b");
  arena_.free(before);
  arena_.free(a);
  arena_.free(b);
  const Lifetimes lifetimes = log.lifetimes(since);
  ASSERT_EQ(lifetimes.all.size(), 2u);
  EXPECT_EQ(lifetimes.all[0].label.name, "a");
  EXPECT_EQ(std::pair(lifetimes.all[0].birth, lifetimes.all[0].death), std::pair(0ul, 2ul));
  EXPECT_EQ(std::pair(lifetimes.all[1].birth, lifetimes.all[1].death), std::pair(1ul, 3ul));
  EXPECT_EQ(log.at_peak().size(), 3u);
  EXPECT_EQ(log.events(), 7u);
}

TEST_F(LoggedArena, HasNoLifetimesOfAPhaseThatBeginsTwice) {
  const AllocationLog log(arena_);
  for (int i = 0; i < 2; ++i) {
    arena_.begin_phase(1);
    arena_.free(allocate(1, "a"));
  }
  expect_error(ErrorKind::invalid, {"phase 1 was recorded before"}, [&] { log.lifetimes(); });
  EXPECT_EQ(log.history().all.size(), 2u);
}

}  // namespace
}  // namespace spool::testing
