// runs: threads, night
// Traces of training steps: a span for every kernel, measured as it was foretold.

#include "spool/runtime/trace.h"

#include <algorithm>

#include "spool/models/training/run/trace.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/end_to_end/trace_testing.h"

namespace spool::testing {
namespace {

// Some kernel's span has the live bytes of the arena's peak; none has more.
void expect_peak_in_spans(const Measured& m) {
  size_t max_live = 0, at_peak = 0;
  for (const TraceSpan& span : m.spans) max_live = std::max(max_live, span.live);
  for (const size_t bytes : m.memory.at_peak_by) at_peak += bytes;
  EXPECT_GE(max_live, at_peak);
  EXPECT_LE(max_live, m.memory.peak);
}

TEST(StepTrace, MeasuredKernelsAreTheForetoldOnesAndHaveThePeak) {
  for (const auto& stream : traced_devices()) {
    const StepPlans plans = make_plans(config_to_trace());
    const Measured measured = measure(config_to_trace(), plans, *stream);
    const Spans foretold = foretell(config_to_trace(), plans, *stream);
    expect_peak_in_spans(measured);
    expect_in_order(measured.spans);
    expect_in_order(foretold);
    const Spans kernels = spans_of(measured.spans, TraceLane::compute, Activity::kernel);
    EXPECT_EQ(kernels.size(), measured.launches);
    EXPECT_GT(kernels.size(), 200u);
    EXPECT_EQ(texts(kernels), texts(spans_of(foretold, TraceLane::compute, Activity::kernel)));
  }
}

TEST(StepTrace, NamesTheOptimizer) {
  const Spans spans = rehearse_step(describe_step(config_to_trace()), make_plans(config_to_trace()),
                                    Machine{}, {.trace = true})
                          .trace;
  ASSERT_TRUE(spans.back().context);
  EXPECT_STREQ(spans.back().context.task, "optimizer");
}

TEST(StepTrace, ChangesNoNumber) {
  const TrainingConfig c = config_to_trace();
  const auto loss = [&](bool traces) {
    CpuStream stream(plenty_to_trace, 2);
    Trainer trainer(c, make_plans(c), stream);
    trainer.initialise();
    std::optional<Traced> traced;
    if (traces) traced.emplace(stream, std::make_shared<Trace>());
    for (int64_t step = 0; step < 2; ++step) trainer.step(step, batch_of(c, step));
    return std::pair(trainer.result().loss, stream.memory().peak);
  };
  EXPECT_EQ(loss(true), loss(false));
}

}  // namespace
}  // namespace spool::testing
