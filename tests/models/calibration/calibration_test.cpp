// Which sample of some work is measured, and what is foretold by it.

#include "spool/models/calibration/calibration.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/run_ranks.h"
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

// Sums of which a rank cannot make any.
MeasurableWork refused_on(int rank, const std::shared_ptr<Communicator>& own) {
  MeasurableWork work = measurable(half);
  work.open = [=, open = work.open](Stream& stream, const WorkMemory& memory) {
    const bool is_rehearsal = stream.device().type == DeviceType::meta;
    check(is_rehearsal || own->rank() != rank, "there is no memory");
    return open(stream, memory);
  };
  return work;
}

TEST_F(CalibrationTest, OfRanksMeasuresOnAllOfThem) {
  std::atomic<int> opened = 0;
  MeasurableWork counted = measurable(half);
  counted.open = [&, open = counted.open](Stream& stream, const WorkMemory& memory) {
    if (stream.device().type == DeviceType::cpu) ++opened;
    return open(stream, memory);
  };
  CalibrationRequest of_ranks = request();
  of_ranks.ranks = 3;
  of_ranks.samples = {counted};
  const Calibration found = calibrate(of_ranks);
  EXPECT_EQ(opened, 3);
  EXPECT_TRUE(has(found, half));
  EXPECT_EQ(found.machine.mesh.ranks, 3);
  const Link link = found.table.links.at({"threads", 3, 1});
  EXPECT_EQ(found.machine.mesh.link.seconds, link.seconds);
  EXPECT_NE(said_.find("the link between 3 ranks by threads: "), std::string::npos) << said_;
  EXPECT_EQ(found.table.measured->ranks, 3);
  said_.clear();
  const Calibration second = calibrate(of_ranks);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(opened, 3);
  EXPECT_EQ(second.machine.mesh.link.bytes_per_second, link.bytes_per_second);
}

TEST_F(CalibrationTest, OfRanksIsKnownToAllOfThem) {
  std::vector<Calibration> found(3);
  run_ranks(3, [&](const std::shared_ptr<Communicator>& own) {
    CalibrationRequest of_ranks = request();
    of_ranks.ranks = 3;
    of_ranks.own_rank = own;
    of_ranks.disk = folder_.path();
    if (own->rank() > 0) of_ranks.say = [](const std::string&) {};
    found[static_cast<size_t>(own->rank())] = calibrate(of_ranks);
  });
  const Machine& first = found.front().machine;
  EXPECT_EQ(found.front().link, "threads");
  for (const Calibration& other : found) {
    const Machine& m = other.machine;
    EXPECT_EQ(to_text(other.table), to_text(found.front().table));
    EXPECT_TRUE(has(other, half));
    EXPECT_EQ(m.f32_flops, first.f32_flops);
    EXPECT_EQ(m.disk_bytes_per_second, first.disk_bytes_per_second);
    EXPECT_EQ(m.mesh.link.bytes_per_second, first.mesh.link.bytes_per_second);
    EXPECT_EQ(m.mesh.rank, &other - found.data());
  }
}

TEST_F(CalibrationTest, OfRanksHasATableOfItsOwn) {
  const Calibration alone = calibrate(request());
  CalibrationRequest of_ranks = request();
  of_ranks.ranks = 2;
  EXPECT_EQ(calibrate(of_ranks).measured, alone.measured);
  EXPECT_EQ(to_text(calibrate(request()).table), to_text(alone.table));
  of_ranks.ranks = 1;
  const Calibration of_one = calibrate(of_ranks);
  EXPECT_EQ(of_one.file, alone.file);
  EXPECT_EQ(of_one.machine.mesh.ranks, 1);
}

TEST_F(CalibrationTest, SaysWhichRankCannotMeasure) {
  for (const int rank : {0, 1}) {
    said_.clear();
    run_ranks(2, [&](const std::shared_ptr<Communicator>& own) {
      CalibrationRequest of_ranks = request();
      of_ranks.ranks = 2;
      of_ranks.own_rank = own;
      of_ranks.samples = {refused_on(rank, own)};
      if (own->rank() > 0) of_ranks.say = [](const std::string&) {};
      const Calibration found = calibrate(of_ranks);
      EXPECT_EQ(found.measured, 0u);
      EXPECT_EQ(found.machine.mesh.rank, own->rank());
    });
    const std::string why = sentence("rank ", rank, ": there is no memory");
    EXPECT_NE(said_.find("could not be measured"), std::string::npos) << said_;
    EXPECT_NE(said_.find(why), std::string::npos) << said_;
  }
}

}  // namespace
}  // namespace spool::testing
