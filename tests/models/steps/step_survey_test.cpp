// The survey of a whole step: its micro-batches, the optimizer's update, and every second.

#include <algorithm>

#include "spool/models/steps/step_rehearsal.h"
#include "tests/models/steps/step_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// Runs a step under a survey; returns its seconds, and those in which compute waits.
std::pair<double, double> survey_step(const StepForm& form, Survey& survey) {
  MetaStream stream{Machine{}};
  CallCounter calls;
  SmallModel model(stream, calls);
  StepExecutor runner(model, form.config, form.plans, stream);
  runner.survey(&survey);
  const auto trace = std::make_shared<Trace>();
  const Traced traced(stream, trace);
  const double begin = stream.now();
  runner.run({.learning_rate = 0.1}, [&](int64_t) { model.upload_placeholder(); });
  return {stream.now() - begin, waited(trace->spans(), TraceLane::compute)};
}

TEST(StepSurvey, HasAllMicroBatchesAndTheUpdateAndEverySecond) {
  for (const StepForm& form : step_forms(Machine{}.architecture)) {
    SCOPED_TRACE(form.name);
    Survey survey;
    const auto [whole, waits] = survey_step(form, survey);
    double seconds = survey.other_seconds;
    std::vector<size_t> works(static_cast<size_t>(form.config.accumulate));
    for (const SurveyedWork& work : survey.works) {
      seconds += work.seconds;
      if (work.phase != Phase::optimizer) ++works.at(static_cast<size_t>(work.micro_batch));
    }
    EXPECT_NEAR(seconds + waits, whole, 1e-9 * whole);
    EXPECT_EQ(survey.micro_batches, form.config.accumulate);
    for (const size_t count : works) EXPECT_EQ(count, works.front());
    EXPECT_GT(works.front(), 0u);

    const auto updates = std::ranges::count(survey.works, Phase::optimizer, &SurveyedWork::phase);
    EXPECT_EQ(updates, 1);
    const SurveyedWork& update = survey.works.back();
    EXPECT_EQ(update.phase, Phase::optimizer);
    EXPECT_GT(update.seconds, 0);
    EXPECT_EQ(description(update), "the optimizer's update");
  }
}

TEST(StepSurvey, IsReturnedByARehearsalThatIsAskedForIt) {
  CallCounter calls;
  const StepDescription step{
      .make_model = [&](Stream& stream) { return std::make_unique<SmallModel>(stream, calls); }};
  const RehearsedStep plain = rehearse_step(step, {}, Machine{});
  EXPECT_TRUE(plain.survey.works.empty());
  EXPECT_TRUE(plain.lifetimes.all.empty());
  EXPECT_TRUE(plain.trace.empty());
  const RehearsedStep asked =
      rehearse_step(step, {}, Machine{}, {.survey = true, .lifetimes = true, .trace = true});
  EXPECT_FALSE(asked.survey.works.empty());
  EXPECT_FALSE(asked.lifetimes.all.empty());
  EXPECT_FALSE(asked.trace.empty());
  EXPECT_EQ(asked.report.memory.peak, plain.report.memory.peak);
  EXPECT_EQ(asked.report.seconds, plain.report.seconds);
  EXPECT_TRUE(asked.report.at_peak.empty());
  ASSERT_TRUE(asked.survey.peak());
  EXPECT_LE(asked.survey.peak()->live, asked.report.memory.peak);
}

TEST(StepSurvey, HasWhatIsLiveAtThePeakOfEveryFormOfAStep) {
  for (const StepForm& form : step_forms(Machine{}.architecture)) {
    SCOPED_TRACE(form.name);
    CallCounter calls;
    const StepDescription step{
        .make_model = [&](Stream& stream) { return std::make_unique<SmallModel>(stream, calls); },
        .config = form.config};
    const Report report = rehearse_step(step, form.plans, Machine{}, {.at_peak = true}).report;
    EnumArray<Purpose, size_t> by = {};
    for (const LiveAtPeak& live : report.at_peak) by[live.purpose] += live.bytes;
    EXPECT_EQ(by, report.memory.at_peak_by);
    EXPECT_FALSE(report.at_peak.empty());
  }
}

}  // namespace
}  // namespace spool::testing
