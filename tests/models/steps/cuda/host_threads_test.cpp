// runs: threads, host
// What the host's threads and the device do at the same time is ordered: ThreadSanitizer watches
// steps with the optimizer's state in every place and with values in a spill file, and finds what
// is planted here.

#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/step_testing.h"
#include "tests/runtime/temporary_directory.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/thread_sanitizer.h"
#endif

namespace spool::testing {
namespace {

class CudaHostThreads : public OnCuda {};

SmallRun::Results results_of(const StepForm& form) {
  const auto stream = cuda_stream();
  SmallRun run(*stream, form.config, form.plans);
  return run.steps_from(0);
}

TEST_F(CudaHostThreads, AreOrderedWithTheStateInEveryPlace) {
  for (const StepForm& form : step_forms(cuda_stream(Arena::granule)->architecture())) {
    SCOPED_TRACE(form.name);
    EXPECT_FALSE(results_of(form).state.empty());
  }
}

TEST_F(CudaHostThreads, AreOrderedWithValuesInASpillFile) {
  const TemporaryDirectory directory;
  StepForm form{.name = "spilled", .config = {.accumulate = 2}, .plans = {}};
  const SmallRun::Results kept = results_of(form);
  Plan& plan = form.plans.step;
  plan.placement.assign(SmallModel::values, Placement::offload);
  for (size_t v = 0; v < SmallModel::values; ++v) {
    plan.offloads.push_back({.value = static_cast<ValueId>(v), .target = OffloadTarget::disk});
  }
  form.plans.disk_bytes = form.plans.host_bytes = size_t{1} << 20;
  form.plans.spill_directory = directory.path();
  const auto stream = cuda_stream();
  SmallRun run(*stream, form.config, form.plans);
  EXPECT_TRUE(run.steps_from(0) == kept);
  EXPECT_GT(run.runner.disk().peak, 0u);
}

#if SPOOL_CUDA_EMULATED
constexpr size_t count = 1000;

// The host changes a number that a host function reads, and waits for it before or after.
int change_a_number(bool waits) {
  const auto stream = cuda_stream();
  int number = 1, seen = 0;
  stream->host_work("reads", 0, [&] { seen = number; });
  if (waits) stream->synchronize();
  number = 2;
  stream->synchronize();
  return seen;
}

// The host changes pinned memory from which it enqueued a copy.
int change_a_copy(bool waits) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{count}}, *stream);
  const auto host = stream->host_memory(x.nbytes());
  auto* numbers = reinterpret_cast<float*>(host.get());
  std::fill_n(numbers, count, 1.0f);
  stream->copy_in(x.view().data(), host.get(), x.nbytes());
  if (waits) stream->synchronize();
  numbers[7] = 2;
  return static_cast<int>(values(x)[7]);
}

// The exit code is that of ThreadSanitizer where it has found a race.
void expect_race(int (*change)(bool waits)) {
  EXPECT_EQ(change(/*waits=*/true), 1);
#if defined(__SANITIZE_THREAD__)
  ASSERT_TRUE(emulator::has_thread_sanitizer());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int race = 66;
  EXPECT_EXIT(std::exit(change(/*waits=*/false) > 2), ::testing::ExitedWithCode(race), "data race");
#else
  EXPECT_EQ(change(/*waits=*/false), 2);  // as late as CUDA allows
#endif
}

TEST_F(CudaHostThreads, ThatChangeWhatAHostFunctionReadsAreFound) { expect_race(change_a_number); }

TEST_F(CudaHostThreads, ThatChangeWhatACopyReadsAreFound) { expect_race(change_a_copy); }
#endif

}  // namespace
}  // namespace spool::testing
