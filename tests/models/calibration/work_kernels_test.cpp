// How often work runs for its kernels to be measured, and what is taken of their times.

#include "spool/models/calibration/work_kernels.h"

#include <gtest/gtest.h>

#include "tests/models/calibration/calibration_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class WorkKernelsTest : public ::testing::Test {
 protected:
  // Measures sums by a clock on which each run takes this time.
  std::vector<KernelTime> measure(double seconds_of_run, double limit) {
    const Sums sums{.elements = 1024, .after_run = [this, seconds_of_run] {
                      ++runs_;
                      now_ += seconds_of_run;
                    }};
    const MeasurableWork work = measurable(sums);
    WorkKernels kernels = rehearse_kernels(work, Machine{});
    runs_ = 0;
    now_ = 0;
    const auto stream = open_stream({DeviceType::cpu}, kernels.peak, /*threads=*/1);
    return measure_kernels(work, /*layout=*/{}, std::move(kernels), *stream,
                           {.seconds = limit,
                            .clock = [this] { return now_; },
                            .late = [this](int runs, double) { late_ = runs; }})
        .launches;
  }

  double now_ = 0;
  int runs_ = 0, late_ = 0;
};

constexpr double unlimited = std::numeric_limits<double>::infinity();

TEST_F(WorkKernelsTest, RunsUntilTheSumIsStable) {
  for (const KernelTime& k : measure(/*seconds_of_run=*/1, unlimited)) EXPECT_GT(k.seconds, 0);
  EXPECT_GE(runs_, 4);
  EXPECT_LE(runs_, 5);
  EXPECT_EQ(late_, 0);
}

TEST_F(WorkKernelsTest, RepeatsWorkOfMoreThanTenSecondsOnce) {
  measure(/*seconds_of_run=*/11, unlimited);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(late_, 0);
  measure(/*seconds_of_run=*/11, /*limit=*/60);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(late_, 0);
}

TEST_F(WorkKernelsTest, EndsBeforeARunThatWouldExceedTheLimit) {
  measure(/*seconds_of_run=*/3, /*limit=*/8);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(late_, 2);
}

TEST_F(WorkKernelsTest, TakesTheTimesOfTheWarmUpIfThereIsNoTimeForMore) {
  const std::vector<KernelTime> launches = measure(/*seconds_of_run=*/40, /*limit=*/60);
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(late_, 1);
  const WorkKernels foretold = rehearse_kernels(measurable({.elements = 1024}), Machine{});
  ASSERT_EQ(launches.size(), foretold.launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_TRUE(same_kernel(launches[i], foretold.launches[i]));
    EXPECT_NE(launches[i].seconds, foretold.launches[i].seconds);
  }
}

TEST_F(WorkKernelsTest, RefusesWorkThatLaunchesOtherKernelsThanItsRehearsal) {
  const MeasurableWork work = measurable({.elements = 1024});
  WorkKernels kernels = rehearse_kernels(work, Machine{});
  kernels.launches.pop_back();
  const auto stream = open_stream({DeviceType::cpu}, kernels.peak, /*threads=*/1);
  expect_error(ErrorKind::invalid, {"rehearsal"},
               [&] { measure_kernels(work, {}, kernels, *stream); });
}

TEST(DistinctKernels, TakeTheMeanOfTheirLaunches) {
  const std::vector<KernelTime> kernels =
      distinct({{"b", {}, 1}, {"a", {}, 2}, {"b", {}, 4}, {"b", {.flops = 1}, 8}});
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0].name, "a");
  EXPECT_EQ(kernels[1].seconds, 2.5);
  EXPECT_EQ(kernels[2].seconds, 8);
}

}  // namespace
}  // namespace spool::testing
