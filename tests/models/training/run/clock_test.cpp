// The correction of a run's foretold time.

#include "spool/models/training/run/clock.h"

#include <gtest/gtest.h>

namespace spool::testing {
namespace {

TEST(StepClock, CorrectsByTheMedianOfSteps2To4) {
  const auto stream = open_stream({DeviceType::cpu}, Arena::granule, 2);
  StepClock clock(*stream, /*foretold=*/2);
  EXPECT_FALSE(clock.add(100));  // the first, which warms up
  EXPECT_FALSE(clock.add(3));
  EXPECT_FALSE(clock.add(70));
  EXPECT_EQ(clock.factor(), 1);
  EXPECT_EQ(clock.add(2.5), 3);
  EXPECT_EQ(clock.factor(), 1.5);
  EXPECT_FALSE(clock.add(9));
  EXPECT_EQ(clock.factor(), 1.5);
  EXPECT_EQ(clock.foretold(), 2);
}

TEST(StepClock, CountsProcessorTime) {
  const auto stream = open_stream({DeviceType::cpu}, Arena::granule, 1);
  StepClock clock(*stream, /*foretold=*/1);
  for (int step = 1; step < 4; ++step) {
    clock.begin();
    EXPECT_FALSE(clock.end());
  }
  clock.begin();
  EXPECT_GE(clock.end().value_or(-1), 0);
}

}  // namespace
}  // namespace spool::testing
