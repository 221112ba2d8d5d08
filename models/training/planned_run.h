#pragma once

// Plans a run before it starts: a plan for each of its tapes, the layout of a step's memory, and
// the memory and time of the run, foretold by a rehearsal.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/training_config.h"

namespace spool {

// How a run executes.  Only the chunks of a plan change results: they change the order of sums.
struct TrainingPlans : StepPlans {
  Plan evaluation = {};
};

// The plans that a policy makes; the machine decides when values are offloaded.
TrainingPlans make_plans(const TrainingConfig&, Policy = {}, const Machine& = {});

// A training step of GPT-2 by this configuration, for steps/step_rehearsal.h.
StepDescription describe_step(const TrainingConfig&);

// The functions of step_rehearsal.h for the step of this configuration.
std::vector<uint64_t> step_fingerprints(const TrainingConfig&);
Lifetimes record_step(const TrainingConfig&, const StepPlans&, const Machine&);
RehearsedStep rehearse_step(const TrainingConfig&, const StepPlans&, const Machine&,
                            const AskedOfRehearsal&);
std::optional<Layout> lay_out_step(const TrainingConfig&, const StepPlans&, const Machine&);

// Length of the text samples of a run, in tokens; drawn = 0: there are none.
struct SampleLength {
  int64_t prompt = 0, drawn = 0;
};

// What a run has to fit into.
struct MemoryLimit {
  Device device = {};
  size_t budget = 0;            // bytes; 0: the foretold peak
  bool batch_is_fixed = false;  // as that of a run that resumes is
};

// How a run of some configuration is to execute.
struct RunRequest {
  Policy policy = {};
  std::optional<Plan> plan = {};               // of a step, in place of the policy's
  bool graph = true;                           // capture a step and replay it, where the device can
  std::filesystem::path spill_directory = {};  // for what is offloaded to a disk
  SampleLength sample = {};
  std::optional<MemoryLimit> limit = {};  // none: any
};

// A planned run; it does not change afterwards.
struct PlannedRun {
  TrainingConfig config = {};
  TrainingPlans plans = {};
  Report foretold = {};
  size_t budget = 0;  // bytes of the device's arena
  // Why the run cannot begin, if it does not fit into the limit: an Error (memory) that says where
  // its peak is and what would fit.
  std::optional<Error> refusal = {};
};

// Throws an error that names the settings if the plan of the request cuts the loss into other
// chunks, or offloads to a disk and no directory is given.
PlannedRun plan_run(const TrainingConfig&, const RunRequest&, const Machine&);

// Where a run reaches its peak, in words: "the backward of linear (node 37)".
std::string place_of_peak(const PlannedRun&, const Machine&);

// Rehearses a run: its peak over a step, an evaluation and a text sample, and the time of one step.
Report rehearse_training(const TrainingConfig&, const TrainingPlans&, const Machine&,
                         const SampleLength& = {});

}  // namespace spool
