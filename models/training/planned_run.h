#pragma once

// A run before it runs: the plans of its tapes, the layout of a step's memory, and what all of it
// takes, foretold by rehearsal.

#include <cstdint>
#include <vector>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/training_config.h"

namespace spool {

// How a run runs; none of it changes a result, but for chunks.
struct TrainingPlans : StepPlans {
  Plan evaluation = {};
};

// Plans by a policy.
TrainingPlans make_plans(const TrainingConfig&, Policy = {}, const Machine& = {});

// A training step of GPT-2 by this configuration, for steps/step_rehearsal.h.
StepDescription describe_step(const TrainingConfig&);

// Those of step_rehearsal.h, of this configuration's step.
std::vector<uint64_t> step_fingerprints(const TrainingConfig&);
Lifetimes record_step(const TrainingConfig&, const StepPlans&, const Machine&);
std::optional<Layout> lay_out_step(const TrainingConfig&, const StepPlans&, const Machine&);
std::vector<TraceSpan> foretell_step(const TrainingConfig&, const StepPlans&, const Machine&);

// Length of the texts that a run writes, in tokens; none if 0.
struct SampleLength {
  int64_t prompt = 0, drawn = 0;
};

// What the run takes: its peak over a step, an evaluation and a text of that length; and the time
// of one step.
Report rehearse_training(const TrainingConfig&, const TrainingPlans&, const Machine&,
                         const SampleLength& = {});

}  // namespace spool
