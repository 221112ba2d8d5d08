// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Plans a run before it starts: a plan for each of its tapes, the layout of a step's memory, and
// the memory and time of the run, foretold by a rehearsal.  What is not set by hand is searched for
// (run_search.h), so that the run fits into its memory.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/steps/step_request.h"
#include "spool/models/training/training_config.h"
#include "spool/planner/report/explanation.h"
#include "spool/planner/search/search.h"

namespace spool {

// How a run executes.  Only the chunks of a plan change results: they change the order of sums.
struct TrainingPlans : StepPlans {
  Plan evaluation = {};
};

// The plans that a policy makes; the machine decides when values are offloaded.
TrainingPlans make_plans(const TrainingConfig&, Policy = {}, const Machine& = {});

// A training step of GPT-2 by this configuration, for steps/step_rehearsal.h; the plan is for
// evaluations.
StepDescription describe_step(const TrainingConfig&, const Plan& evaluation = {});

// The policy with the chunks of the configuration.
Policy with_chunks_of(const TrainingConfig&, Policy);
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
  std::optional<Device> device = {};  // none: a machine that is not here
  size_t budget = 0;                  // bytes; 0: the foretold peak
  // Bytes that a run without a budget may take; if the plan as set by hand takes more, another one
  // is searched for.
  size_t free = MetaStream::unlimited;
  size_t most = MetaStream::unlimited;  // that there are for the arena
  size_t besides = 0;  // that the program is expected to take of the same memory; 0: of another
  bool batch_is_fixed = false;  // as that of a run that resumes is, and its chunks
};

// How a run of some configuration is to execute.
struct RunRequest {
  Policy policy = {};
  std::optional<Plan> plan = {};               // of a step, in place of the policy's
  Choices choose = {};                         // the rest is the policy's and the configuration's
  bool graph = true;                           // capture a step and replay it, where the device can
  std::filesystem::path spill_directory = {};  // for what is offloaded to a disk
  SampleLength sample = {};
  std::optional<MemoryLimit> limit = {};  // none: any
};

// Its part for the steps of this configuration.
StepRequest step_request(const TrainingConfig&, const RunRequest&);

// A planned run; it does not change afterwards.
struct PlannedRun {
  TrainingConfig config = {};  // with the chunks that were chosen
  TrainingPlans plans = {};
  Report foretold = {};
  size_t budget = 0;        // bytes of the device's arena
  bool has_budget = false;  // one was set; otherwise the arena has what the run takes
  // If the plan was searched for: what was found, and the most bytes that it might take.
  std::optional<SearchResult> search = {};
  size_t limit = 0;
  size_t besides = 0;  // as in MemoryLimit
  // Why the run cannot begin, if it does not fit into the limit: an Error (memory) that says where
  // its peak is and what would fit.
  std::optional<Error> refusal = {};
};

// The most bytes of the device that the plan might take: the budget, or the free memory if a plan
// was searched for without one, or what it takes if nothing limits it.
size_t limit_of(const PlannedRun&);
bool is_limited_by_free_memory(const PlannedRun&);

// Searches for a plan if something may be chosen and the request has a budget, or if what is set by
// hand does not fit into the free memory.  Throws an error that names the settings if the plan of
// the request has other chunks than the configuration, or offloads to a disk and no
// directory is given.
PlannedRun plan_run(const TrainingConfig&, const RunRequest&, const Machine&);

// Throws an error that names the settings if a plan of the request, which would be `own` without
// it, cuts into other chunks than the run's, or offloads to a disk and no directory is given.
void check_given(const Plan& given, const Plan& own, const RunRequest&, const TrainingConfig&);

// The configuration with the nodes in chunks of the request's plan, and without any if the search
// chooses them; unchanged if they are set.
TrainingConfig with_nodes_in_chunks(TrainingConfig, const RunRequest&);

// Where a run reaches its peak, in words: "the backward of linear (node 37)".
std::string place_of_peak(const PlannedRun&, const Machine&);

// Hands over the program of a step's tape that keeps every value, while its parameters exist.
void read_program(const TrainingConfig&, const std::function<void(const Program&)>&);
// What the plan of the run's step does to each layer.
std::vector<LayerGroup> explain(const PlannedRun&);

// Throws if the file exists and is not a plan, or cannot be written.
void check_plan_file(const std::filesystem::path&);
// Writes the plan of the run's step to such a file, with what it was made for.
void save_step_plan(const std::filesystem::path&, const PlannedRun&, const Machine&);

// Rehearses a run: its peak over a step, an evaluation and a text sample, and the time of one step.
Report rehearse_training(const TrainingConfig&, const TrainingPlans&, const Machine&,
                         const SampleLength& = {});
// Rehearses the evaluation and the text sample alone.
MemoryStats rehearse_others(const TrainingConfig&, const TrainingPlans&, const Machine&,
                            const SampleLength&);

}  // namespace spool
