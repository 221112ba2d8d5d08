// Which sample of some work is measured, and what is foretold by it.

#include "spool/models/calibration/calibration.h"

#include <gtest/gtest.h>

#include "tests/models/calibration/calibration_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

const Sums whole{.elements = 1 << 22}, half{.elements = 1 << 21}, small{.elements = 1 << 10};

class CalibrationTest : public ::testing::Test {
 protected:
  CalibrationRequest request() {
    return {.device = {DeviceType::cpu},
            .threads = 1,
            .work = measurable(whole),
            .samples = {measurable(half), measurable(small)},
            .folder = folder_.path(),
            .say = [this](const std::string& text) { said_ += text + "\n"; }};
  }
  // The rates of the device, which are in the table from then on.
  Machine rates() {
    CalibrationRequest only_rates = request();
    only_rates.samples.clear();
    return calibrate(only_rates).machine;
  }
  // Whether the table has the kernels of this work.
  static bool has(const Calibration& found, const Sums& sums) {
    for (const KernelTime& k : rehearse_kernels(measurable(sums), Machine{}).launches) {
      if (!found.machine.kernels->find(k.name.c_str(), k.cost)) return false;
    }
    return true;
  }

  TemporaryDirectory folder_;
  std::string said_;
};

TEST_F(CalibrationTest, MeasuresTheFirstSampleThatFitsIntoTheMemory) {
  EXPECT_TRUE(has(calibrate(request()), half));
  const TemporaryDirectory fresh;
  CalibrationRequest limited = request();
  limited.folder = fresh.path();
  limited.memory = size_t{1} << 20;
  const Calibration found = calibrate(limited);
  EXPECT_FALSE(has(found, half));
  EXPECT_TRUE(has(found, small));
}

TEST_F(CalibrationTest, MeasuresTheFirstSampleThatRunsTwiceInTheTime) {
  const double seconds = rehearse_kernels(measurable(half), rates()).seconds;
  CalibrationRequest limited = request();
  limited.seconds = 1.9 * seconds;
  const Calibration found = calibrate(limited);
  EXPECT_FALSE(has(found, half));
  EXPECT_TRUE(has(found, small));
  EXPECT_EQ(calibrate(limited).measured, 0u);  // a second start chooses the same
  limited.renewal = Renewal::lower;            // has no limit
  EXPECT_TRUE(has(calibrate(limited), half));
}

TEST_F(CalibrationTest, MeasuresNothingIfNoSampleFitsIntoTheTime) {
  CalibrationRequest limited = request();
  limited.seconds = 0;
  const Calibration found = calibrate(limited);
  EXPECT_EQ(found.measured, 0u);
  EXPECT_EQ(found.unmeasured.size(), 2u);
  for (const KernelTime& k : found.unmeasured) {
    EXPECT_EQ(k.seconds, found.machine.seconds(k.cost));
  }
}

TEST_F(CalibrationTest, ScalesTheRatesForWhatNoSampleLaunches) {
  const Calibration found = calibrate(request());
  EXPECT_EQ(found.kernels.size(), 0u);
  ASSERT_EQ(found.unmeasured.size(), 2u);
  for (const KernelTime& k : found.unmeasured) {
    const Cost of_half{k.cost.flops / 2, k.cost.bytes / 2, k.cost.dtype};
    const double* measured = found.machine.kernels->find(k.name.c_str(), of_half);
    ASSERT_TRUE(measured) << k.name;
    const double scale = *measured / found.machine.seconds(of_half);
    EXPECT_DOUBLE_EQ(k.seconds, scale * found.machine.seconds(k.cost)) << k.name;
  }
  const Calibration second = calibrate(request());
  EXPECT_EQ(second.measured, 0u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(second.unmeasured[i].seconds, found.unmeasured[i].seconds);
  }
}

}  // namespace
}  // namespace spool::testing
