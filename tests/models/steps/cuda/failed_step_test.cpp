// A failed step on a device that captures steps: the next one is prepared again, and no graph of
// the failed step is replayed.

#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/step_testing.h"

namespace spool::testing {
namespace {

class CudaFailedStep : public OnCuda {};

TEST_F(CudaFailedStep, LeavesNothingLiveAndTheNextStepHasItsBits) {
  for (const StepForm& form : step_forms(cuda_stream(Arena::granule)->architecture())) {
    expect_no_trace_of_failed_steps(
        form, [](size_t bytes) { return cuda_stream(bytes); }, /*stride=*/nightly() ? 1 : 7);
  }
}

struct Launches {
  SmallRun& run;
  uint64_t of(int64_t step) const {
    const uint64_t before = run.stream.launches();
    run.step(step);
    EXPECT_TRUE(run.runner.result().finite);
    return run.stream.launches() - before;
  }
};

// The calls that may fail: two uploads of a placeholder, and five of ops in each of their
// micro-batches; then, in each micro-batch of the step, its upload and five of ops.
TEST_F(CudaFailedStep, IsPreparedAndCapturedAgain) {
  const StepConfig config{.accumulate = 2};
  const auto reference = cuda_stream();
  SmallRun unfailed(*reference, config, {});
  const uint64_t before = reference->launches();
  unfailed.runner.prepare(0.01);
  const uint64_t prepared = reference->launches() - before;
  const uint64_t captured = Launches{unfailed}.of(0), replayed = Launches{unfailed}.of(1);
  EXPECT_GT(prepared, 0u);
  EXPECT_LT(4 * replayed, captured);
  for (const int64_t call : {0, 4, 8, 11, 12, 16, 18, 21, 23}) {
    SCOPED_TRACE(sentence("call ", call));
    const auto stream = cuda_stream();
    SmallRun run(*stream, config, {});
    run.calls.fail_at(call);
    expect_error(ErrorKind::device, {"a call that is to fail"}, [&] { run.step(0); });
    const bool was_prepared = call >= 2 + 2 * 5;
    EXPECT_EQ(Launches{run}.of(0), was_prepared ? captured : prepared + captured);
    EXPECT_EQ(run.model.placeholders(), was_prepared || call == 0 ? 1 : 2);
    EXPECT_EQ(Launches{run}.of(1), replayed);
  }
}

// A later step may fail, too, and then replays no graph of an earlier one.
TEST_F(CudaFailedStep, DropsTheGraphsOfEarlierSteps) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, {.accumulate = 2}, {});
  run.runner.prepare(0.01);
  const Launches launches{run};
  const uint64_t captured = launches.of(0), replayed = launches.of(1);
  run.calls.fail_at(1);  // the upload of the second micro-batch
  expect_error(ErrorKind::device, {"a call that is to fail"}, [&] { run.step(2); });
  EXPECT_EQ(launches.of(2), captured);
  EXPECT_EQ(launches.of(3), replayed);
}

}  // namespace
}  // namespace spool::testing
