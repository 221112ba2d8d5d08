#include "spool/models/training/step_layout.h"

#include <algorithm>

#include "spool/planner/offsets.h"

namespace spool {
namespace {

struct Rehearsed {
  Lifetimes lifetimes = {};
  size_t peak = 0;
};

Rehearsed rehearse_step(TrainingConfig config, const TrainingPlans& plans, const Machine& machine) {
  config.accumulate = std::min(config.accumulate, distinct_micro_batches);
  Rehearsed r;
  const Report report = rehearse(machine, [&](MetaStream& stream) {
    Trainer trainer(config, plans, stream);
    LifetimeRecorder recording(stream.arena());
    trainer.step(0, no_rows);
    r.lifetimes = recording.finish();
  });
  r.peak = report.memory.peak;
  return r;
}

}  // namespace

Lifetimes record_step(const TrainingConfig& config, const TrainingPlans& plans,
                      const Machine& machine) {
  return rehearse_step(config, plans, machine).lifetimes;
}

std::optional<Layout> lay_out_step(const TrainingConfig& config, TrainingPlans plans,
                                   const Machine& machine) {
  plans.layout.reset();
  Rehearsed as_it_comes = rehearse_step(config, plans, machine);
  plans.layout = assign_offsets(std::move(as_it_comes.lifetimes));
  const Rehearsed laid_out = rehearse_step(config, plans, machine);
  return laid_out.peak < as_it_comes.peak ? std::move(plans.layout) : std::nullopt;
}

}  // namespace spool
