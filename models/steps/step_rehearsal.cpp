#include "spool/models/steps/step_rehearsal.h"

#include <algorithm>

#include "spool/autograd/fingerprint.h"
#include "spool/planner/offsets.h"

namespace spool {
namespace {

// A micro-batch on meta, forward and backward, as StepRunner runs it.
void rehearse_micro_step(const StepDescription& step, const Machine& machine,
                         const TapeOptions& given,
                         const std::function<void(const Tape&)>& after_forward) {
  MetaStream stream(machine);
  const std::unique_ptr<StepModel> model = step.make_model(stream);
  TapeOptions options = given;
  options.backward_follows = true;
  options.loss_scale = Tensor({Shape{1}, accumulator(step.config.dtype)}, stream);
  options.random = Tensor({Shape{4}, DType::i32}, stream);
  Tape tape(stream, options);
  const Var loss = model->loss(tape);
  after_forward(tape);
  tape.backward(loss);
}

// A whole step on meta; `around` runs the step that it is given, and may look at the stream before
// and after.
Report rehearse_step(const StepDescription& step, const StepPlans& plans, const Machine& machine,
                     const std::function<void(MetaStream&, const std::function<void()>&)>& around) {
  return rehearse(machine, [&](MetaStream& stream) {
    const std::unique_ptr<StepModel> model = step.make_model(stream);
    StepRunner runner(*model, step.config, plans, stream);
    runner.optimizer().initialise();
    around(stream, [&] { runner.run(Step{}, [&](int64_t) { model->upload_placeholder(); }); });
  });
}

struct Rehearsed {
  Lifetimes lifetimes = {};
  size_t peak = 0;
};

Rehearsed rehearse_memory(StepDescription step, const StepPlans& plans, const Machine& machine) {
  step.config.accumulate = std::min(step.config.accumulate, distinct_micro_batches);
  Rehearsed r;
  const Report report = rehearse_step(step, plans, machine,
                                      [&](MetaStream& stream, const std::function<void()>& run) {
                                        LifetimeRecorder recorder(stream.arena());
                                        run();
                                        r.lifetimes = recorder.finish();
                                      });
  r.peak = report.memory.peak;
  return r;
}

}  // namespace

Plan plan_step(const StepDescription& step, const Policy& policy, const Machine& machine) {
  return plan_from_policy(policy, machine,
                          [&](const Machine& on, const TapeOptions& options,
                              const std::function<void(const Tape&)>& after_forward) {
                            rehearse_micro_step(step, on, options, after_forward);
                          });
}

std::vector<uint64_t> step_fingerprints(const StepDescription& step) {
  std::vector<uint64_t> all;
  rehearse_micro_step(step, {}, {}, [&](const Tape& tape) { all = fingerprints(tape); });
  return all;
}

Lifetimes record_step(const StepDescription& step, const StepPlans& plans, const Machine& machine) {
  return rehearse_memory(step, plans, machine).lifetimes;
}

std::optional<Layout> lay_out_step(const StepDescription& step, StepPlans plans,
                                   const Machine& machine) {
  plans.layout.reset();
  Rehearsed best_fit = rehearse_memory(step, plans, machine);
  plans.layout = assign_offsets(std::move(best_fit.lifetimes));
  const Rehearsed placed = rehearse_memory(step, plans, machine);
  return placed.peak < best_fit.peak ? std::move(plans.layout) : std::nullopt;
}

std::vector<TraceSpan> foretell_step(const StepDescription& step, const StepPlans& plans,
                                     const Machine& machine) {
  const auto trace = std::make_shared<Trace>();
  rehearse_step(step, plans, machine, [&](MetaStream& stream, const std::function<void()>& run) {
    const Traced traced(stream, trace);
    run();
  });
  return trace->spans();
}

}  // namespace spool
