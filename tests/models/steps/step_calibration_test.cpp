// What a calibration of a step measures, stores, and needs.

#include "spool/models/steps/step_calibration.h"

#include <gtest/gtest.h>

#include "spool/models/steps/step_rehearsal.h"
#include "tests/models/steps/step_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class StepCalibration : public ::testing::Test {
 protected:
  StepDescription step(int64_t accumulate = 1) {
    return {.make_model =
                [this](Stream& stream) { return std::make_unique<SmallModel>(stream, calls_); },
            .config = {.accumulate = accumulate}};
  }
  CalibrationRequest request(int64_t accumulate = 1) {
    CalibrationRequest request{.device = {DeviceType::cpu},
                               .threads = 2,
                               .folder = folder_.path(),
                               .say = [this](const std::string& text) { said_ += text + "\n"; }};
    for (const StepPlans& plans : calibration_plans(step(accumulate), {})) {
      request.samples.push_back(measurable_step(step(accumulate), plans));
    }
    request.work = request.samples.front();
    return request;
  }
  // The only file in the folder.
  std::string table() const {
    for (const std::string& name : names_in(folder_.path())) {
      if (name.ends_with(".json")) return content_of(folder_.path() / name);
    }
    return {};
  }

  TemporaryDirectory folder_;
  CallCounter calls_;
  std::string said_;
};

TEST_F(StepCalibration, MeasuresNothingIfItIsOfNoUse) {
  CalibrationRequest wanted = request();
  int asked = 0;
  wanted.is_of_use = [&](const Machine& machine) {
    EXPECT_TRUE(std::holds_alternative<CpuArchitecture>(machine.architecture));
    return ++asked > 1;
  };
  EXPECT_EQ(calibrate(wanted).measured, 0u);
  EXPECT_EQ(table(), "");
  EXPECT_GT(calibrate(wanted).measured, 0u);
  EXPECT_EQ(asked, 2);
  calibrate(wanted);
  EXPECT_EQ(asked, 2);  // nothing is left to measure
}

TEST_F(StepCalibration, CoversTheKernelsOfTheStepAndNoOthers) {
  for (const int64_t accumulate : {1, 2, 5}) {
    const TemporaryDirectory fresh;
    CalibrationRequest wanted = request(accumulate);
    wanted.folder = fresh.path();
    const Calibration found = calibrate(wanted);
    EXPECT_TRUE(found.unmeasured.empty());
    EXPECT_EQ(found.measured, found.kernels.size());
    EXPECT_EQ(found.machine.kernels->all().size(), found.kernels.size());
    std::set<std::string> launched;
    const RehearsedStep rehearsed =
        rehearse_step(step(accumulate), {}, found.machine, {.trace = true});
    for (const TraceSpan& span : rehearsed.trace) {
      if (span.activity != Activity::kernel) continue;
      launched.insert(span.name);
      const double* seconds = found.machine.kernels->find(span.name, span.cost);
      ASSERT_TRUE(seconds) << span.name;
      EXPECT_NEAR(span.seconds(), *seconds, 1e-9);
    }
    for (const KernelTime& k : found.machine.kernels->all()) EXPECT_TRUE(launched.contains(k.name));
    EXPECT_EQ(found.machine.kernels->find("matmul", {.flops = 1}), nullptr);
  }
}

// A rank's sums are on its exchange queue, beside its step.  The model has a bucket of two granules
// and a smaller one, whose sums are scaled as those of the first.
TEST_F(StepCalibration, CoversTheSumsOfRanks) {
  constexpr double whole = 2048 * 3 * sizeof(float);  // bytes of a sum of two pieces, at least
  for (const int zero : {0, 1, 2}) {
    for (const int64_t accumulate : {2, 4}) {
      const TemporaryDirectory fresh;
      StepDescription of_ranks = step(accumulate);
      of_ranks.config.ranks = 2;
      of_ranks.config.zero = zero;
      CalibrationRequest wanted = request();
      wanted.folder = fresh.path();
      wanted.ranks = 2;
      wanted.samples = {measurable_step(of_ranks, {})};
      const Calibration found = calibrate(wanted);
      int64_t sums = 0;
      for (const TraceSpan& span :
           rehearse_step(of_ranks, {}, found.machine, {.trace = true}).trace) {
        if (span.name != std::string("sum_ranks") || span.cost.bytes < whole) continue;
        EXPECT_EQ(span.lane, TraceLane::exchange);
        const double* seconds = found.machine.kernels->find(span.name, span.cost);
        ASSERT_TRUE(seconds) << span.cost.flops << " flops, stage " << zero;
        EXPECT_NEAR(span.seconds(), *seconds, 1e-9);
        ++sums;
      }
      EXPECT_EQ(sums, zero == 2 ? accumulate / 2 : 1);
    }
  }
}

TEST_F(StepCalibration, OfASecondStartEqualsTheFirst) {
  const Calibration first = calibrate(request());
  const std::string stored = table();
  EXPECT_FALSE(stored.empty());
  EXPECT_NE(said_.find("kernels of the step were measured"), std::string::npos);
  said_.clear();
  const Calibration second = calibrate(request());
  EXPECT_EQ(second.measured, 0u);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(table(), stored);
  EXPECT_EQ(rehearse_step(step(), {}, second.machine).report.seconds,
            rehearse_step(step(), {}, first.machine).report.seconds);
  EXPECT_EQ(second.machine.f32_flops, first.machine.f32_flops);
}

TEST_F(StepCalibration, MeasuresOnlyWhatTheTableLacks) {
  const Calibration first = calibrate(request());
  const Calibration more = calibrate(request(/*accumulate=*/2));
  EXPECT_GT(more.measured, 0u);
  EXPECT_LT(more.measured, more.kernels.size());
  for (const KernelTime& k : first.kernels) {
    EXPECT_EQ(*more.machine.kernels->find(k.name.c_str(), k.cost), k.seconds) << k.name;
  }
}

TEST_F(StepCalibration, OnlyLowersTimesUnlessItReplacesThem) {
  const Calibration first = calibrate(request());
  CalibrationRequest again = request();
  again.renewal = Renewal::lower;
  const Calibration lowered = calibrate(again);
  EXPECT_EQ(lowered.measured, first.measured);
  for (size_t i = 0; i < first.kernels.size(); ++i) {
    EXPECT_LE(lowered.kernels[i].seconds, first.kernels[i].seconds);
  }
  again.renewal = Renewal::replace;
  bool differs = false;
  const Calibration replaced = calibrate(again);
  for (size_t i = 0; i < first.kernels.size(); ++i) {
    differs = differs || replaced.kernels[i].seconds != lowered.kernels[i].seconds;
  }
  EXPECT_TRUE(differs);
}

TEST_F(StepCalibration, StaysWithinTheMemory) {
  CalibrationRequest small = request();
  const WorkKernels kernels = rehearse_kernels(small.samples.front(), Machine{});
  small.memory = kernels.peak;
  EXPECT_TRUE(calibrate(small).unmeasured.empty());
  const TemporaryDirectory fresh;
  small.folder = fresh.path();
  small.memory = Arena::granule;
  const Calibration none = calibrate(small);
  EXPECT_TRUE(none.kernels.empty());
  EXPECT_FALSE(none.unmeasured.empty());
  EXPECT_EQ(none.measured, 0u);
  EXPECT_GT(none.machine.f32_flops, 0);
}

TEST_F(StepCalibration, SetsAnUnreadableTableAside) {
  const Calibration first = calibrate(request());
  const std::string file = first.file.filename().string();
  folder_.file(file, "no table");
  said_.clear();
  const Calibration again = calibrate(request());
  EXPECT_EQ(again.measured, first.measured);
  EXPECT_NE(said_.find(file), std::string::npos);
  EXPECT_NE(said_.find("measured again"), std::string::npos);
  EXPECT_EQ(content_of(first.file.string() + ".unread"), "no table");
}

TEST_F(StepCalibration, ContinuesIfNothingCanBeStored) {
  CalibrationRequest wanted = request();
  wanted.folder = folder_.file("a file", "") / "folder";
  const Calibration found = calibrate(wanted);
  EXPECT_TRUE(found.file.empty());
  EXPECT_GT(found.measured, 0u);
  EXPECT_NE(said_.find("not kept"), std::string::npos);
  wanted.folder.clear();
  said_.clear();
  EXPECT_GT(calibrate(wanted).measured, 0u);
  EXPECT_EQ(said_.find("not kept"), std::string::npos);
}

}  // namespace
}  // namespace spool::testing
