// runs: threads
// A step that fails leaves no trace, wherever it fails.

#include "spool/runtime/cpu/bf16_products.h"
#include "tests/models/steps/step_testing.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(FailedStep, LeavesNothingLiveAndTheNextStepHasItsBits) {
  const EnvironmentVariable delay("SPOOL_CPU_DELAY", "100");
  for (const StepForm& form : step_forms(this_processor(2))) {
    expect_no_trace_of_failed_steps(
        form, [](size_t bytes) { return std::make_unique<CpuStream>(bytes, 2); });
  }
}

}  // namespace
}  // namespace spool::testing
