// An AllocationLog: births, deaths and copies in order, with their times and their work.

#include "spool/runtime/memory/allocation_log.h"

#include <gtest/gtest.h>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr TraceContext forward{.task = "forward", .op = "linear", .node = 3};
constexpr TraceContext copy{.task = "linear", .node = 7};

class LoggedArena : public ::testing::Test {
 protected:
  Arena::Block* allocate(size_t bytes, Name name) {
    return arena_.allocate({Shape{static_cast<int64_t>(bytes)}, DType::i8}, {.name = name});
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(8 * Arena::granule);
  Arena arena_{memory_.data(), memory_.size(), "test"};
  double now_ = 0;
  TraceContext work_ = {};
};

TEST_F(LoggedArena, HasEveryEventWithItsTimeAndWork) {
  Arena::Block* const before = allocate(1, "before");
  AllocationLog log(
      arena_, [this] { return now_; }, [this] { return work_; });
  work_ = forward;
  Arena::Block* const a = allocate(Arena::granule + 1, "a");
  now_ = 1;
  work_ = copy;
  Arena::Block* const b = allocate(1, "b");
  log.record_offloaded(arena_.address(a) + Arena::granule, 7);
  log.record_offloaded(arena_.address(a), 8);
  now_ = 2;
  work_ = {};
  arena_.free(a);
  arena_.free(before);
  EXPECT_EQ(log.events(), 4u);
  const AllocationHistory history = log.history();
  EXPECT_EQ(history.times, (std::vector<double>{0, 1, 1, 2}));
  ASSERT_EQ(history.all.size(), 2u);
  const LoggedAllocation& first = history.all[0];
  EXPECT_EQ(first.label.name, "a");
  EXPECT_EQ(first.bytes, 2 * Arena::granule);
  EXPECT_EQ(first.birth, 0u);
  EXPECT_EQ(first.offloaded, 2u);
  EXPECT_EQ(first.transfer, 7u);
  EXPECT_EQ(first.death, 3u);
  EXPECT_EQ(first.born_in, forward);
  EXPECT_EQ(first.died_in, forward);  // the last work that is no copy
  EXPECT_EQ(history.all[1].death, LoggedAllocation::never);
  EXPECT_TRUE(is_copy(history.all[1].born_in));
  arena_.free(b);
}

TEST_F(LoggedArena, KnowsTheRowsThatStay) {
  AllocationLog log(
      arena_, [] { return 0.0; }, [] { return TraceContext{}; });
  Arena::Block* const a = allocate(1, "a");
  Arena::Block* const b = allocate(1, "b");
  log.record_rest(arena_.address(b), 7);
  EXPECT_FALSE(log.history().all[0].is_rest);
  EXPECT_TRUE(log.history().all[1].is_rest);
  EXPECT_EQ(log.history().all[1].transfer, 7u);
  EXPECT_EQ(log.history().all[1].offloaded, LoggedAllocation::never);
  arena_.free(a);
  arena_.free(b);
}

TEST_F(LoggedArena, HasOneLogAtATime) {
  const auto clock = [] { return 0.0; };
  const auto work = [] { return TraceContext{}; };
  {
    const AllocationLog log(arena_, clock, work);
    EXPECT_EQ(arena_.allocation_log(), &log);
    expect_error(ErrorKind::invalid, {"has a log already"},
                 [&] { AllocationLog(arena_, clock, work); });
    EXPECT_EQ(arena_.allocation_log(), &log);
  }
  EXPECT_EQ(arena_.allocation_log(), nullptr);
}

}  // namespace
}  // namespace spool::testing
