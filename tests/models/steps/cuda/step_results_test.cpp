// The results of steps on a device that runs behind the host.

#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/step_testing.h"

namespace spool::testing {
namespace {

class CudaStepResults : public OnCuda {};

using Results = std::vector<std::pair<float, float>>;

void expect_finite(const StepResult& result, Results& all) {
  EXPECT_TRUE(result.finite);
  all.emplace_back(result.loss, result.grad_norm);
}

constexpr int64_t steps = 5;

Results read_at_once(const StepForm& form) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, form.config, form.plans);
  Results all;
  for (int64_t step = 0; step < steps; ++step) {
    run.step(step);
    expect_finite(run.runner.result(), all);
  }
  return all;
}

// Reads every step but the last while the next one is enqueued.
Results read_behind(const StepForm& form) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, form.config, form.plans);
  EXPECT_TRUE(run.runner.runs_ahead());
  Results all;
  run.step(0);
  for (int64_t step = 1; step < steps; ++step) {
    run.step(step);
    expect_finite(run.runner.result(step - 1), all);
  }
  expect_finite(run.runner.result(steps - 1), all);
  return all;
}

TEST_F(CudaStepResults, AreThoseOfEachStepWhileTheNextIsInTheQueue) {
  for (const StepForm& form : step_forms(cuda_stream(Arena::granule)->architecture())) {
    if (form.plans.step.optimizer_state == OptimizerState::cpu) continue;  // never runs ahead
    SCOPED_TRACE(form.name);
    const Results wanted = read_at_once(form);
    EXPECT_NE(wanted.front(), wanted.back());
    EXPECT_EQ(read_behind(form), wanted);
  }
}

TEST_F(CudaStepResults, AreKeptForTheLastTwoSteps) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, {}, {});
  for (int64_t step = 0; step < 3; ++step) run.step(step);
  EXPECT_TRUE(run.runner.result(1).finite);
  EXPECT_TRUE(run.runner.result(2).finite);
  expect_error(ErrorKind::invalid, {"step 0", "after 3 steps"}, [&] { run.runner.result(0); });
}

TEST_F(CudaStepResults, WaitForTheStepWhereTheHostWorksInIt) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, {},
               {.step = {.optimizer_state = OptimizerState::cpu}, .host_bytes = size_t{1} << 20});
  EXPECT_FALSE(run.runner.runs_ahead());
  run.step(0);
  EXPECT_TRUE(run.runner.result(0).finite);
  run.step(1);
  expect_error(ErrorKind::invalid, {"step 0", "after 2 steps"}, [&] { run.runner.result(0); });
}

}  // namespace
}  // namespace spool::testing
