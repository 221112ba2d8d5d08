// Schedules of the learning rate, against their formulas.

#include "spool/models/optimizers/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spool::testing {
namespace {

LearningRate rate(LrSchedule schedule) {
  return {.schedule = schedule, .peak = 0.5, .floor = 0.1, .warmup = 4, .steps = 24, .decay = 5};
}

TEST(LearningRate, EachScheduleWarmsUpLinearly) {
  for (const LrSchedule schedule : enumerators<LrSchedule>()) {
    for (int64_t step = 0; step < 4; ++step) {
      const double expected = 0.5 * static_cast<double>(step + 1) / 4;
      EXPECT_DOUBLE_EQ(rate(schedule).at(step), expected) << name(schedule);
    }
    EXPECT_DOUBLE_EQ(rate(schedule).at(4), 0.5) << name(schedule);
  }
}

TEST(LearningRate, FollowsItsFormulaAfterTheWarmUp) {
  EXPECT_DOUBLE_EQ(rate(LrSchedule::cosine).at(14), 0.3);
  EXPECT_DOUBLE_EQ(rate(LrSchedule::cosine).at(9), 0.3 + 0.2 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(rate(LrSchedule::linear).at(9), 0.4);
  EXPECT_DOUBLE_EQ(rate(LrSchedule::linear).at(23), 0.12);
  EXPECT_DOUBLE_EQ(rate(LrSchedule::constant).at(23), 0.5);
  EXPECT_DOUBLE_EQ(rate(LrSchedule::wsd).at(19), 0.5);
  EXPECT_DOUBLE_EQ(rate(LrSchedule::wsd).at(20), 0.5 - 0.4 * std::sqrt(0.2));
  EXPECT_DOUBLE_EQ(rate(LrSchedule::wsd).at(23), 0.5 - 0.4 * std::sqrt(0.8));
}

TEST(LearningRate, StaysAtItsEndBeyondTheLastStep) {
  for (const LrSchedule schedule : enumerators<LrSchedule>()) {
    const double end = schedule == LrSchedule::constant ? 0.5 : 0.1;
    EXPECT_DOUBLE_EQ(rate(schedule).at(24), end) << name(schedule);
    EXPECT_DOUBLE_EQ(rate(schedule).at(1000), end) << name(schedule);
  }
}

TEST(LearningRate, OfALongerRunBeginsAlikeUntilTheDecay) {
  LearningRate longer = rate(LrSchedule::wsd);
  longer.steps = 40;
  EXPECT_TRUE(longer.begins_as(rate(LrSchedule::wsd), 20));
  EXPECT_FALSE(longer.begins_as(rate(LrSchedule::wsd), 21));
  longer.schedule = LrSchedule::constant;
  EXPECT_TRUE(longer.begins_as(rate(LrSchedule::constant), 24));
  longer.schedule = LrSchedule::cosine;
  EXPECT_FALSE(longer.begins_as(rate(LrSchedule::cosine), 6));
}

TEST(LearningRate, WithoutAWarmUpBeginsAtTheHighest) {
  LearningRate all = rate(LrSchedule::wsd);
  all.warmup = 0;
  all.decay = all.steps = 1;
  EXPECT_DOUBLE_EQ(all.at(0), 0.5);
}

}  // namespace
}  // namespace spool::testing
