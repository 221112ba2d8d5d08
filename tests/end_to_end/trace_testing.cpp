#include "tests/end_to_end/trace_testing.h"

namespace spool::testing {

TrainingConfig config_to_trace() {
  TrainingConfig c = small();
  c.accumulate = 5;  // more than a rehearsal of the time runs
  c.chunks.loss_rows = 16;
  c.dropout = 0.1f;
  return c;
}

Measured measure(const TrainingConfig& c, const StepPlans& plans, Stream& stream) {
  Trainer trainer(c, plans, stream);
  trainer.initialise();
  trainer.step(0, batch_of(c, 0));
  const auto trace = std::make_shared<Trace>();
  const uint64_t before = stream.launches();
  {
    const Traced traced(stream, trace);
    trainer.step(1, batch_of(c, 1));
  }
  const uint64_t launches = stream.launches() - before;
  trainer.step(2, batch_of(c, 2));
  return {.spans = trace->spans(), .launches = launches, .memory = stream.memory()};
}

Spans foretell(const TrainingConfig& c, const StepPlans& plans, Stream& like) {
  return rehearse_step(describe_step(c), plans, Machine{.architecture = like.architecture()},
                       {.trace = true})
      .trace;
}

}  // namespace spool::testing
