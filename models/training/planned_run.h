#pragma once

// A training run as steps/step_planner.h plans it: its step, its evaluations and its text samples.

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_planner.h"
#include "spool/models/training/training_config.h"
#include "spool/planner/report/explanation.h"

namespace spool {

struct RunOptions;

// Length of the text samples of a run, in tokens; drawn = 0: there are none.
struct SampleLength {
  int64_t prompt = 0, drawn = 0;
};

// A training step by this configuration; the plan is for evaluations.
StepDescription describe_step(const TrainingConfig&, const Plan& evaluation = {});
// The run, for a planner.
RunSteps describe_run(const TrainingConfig&, const SampleLength&, const Machine&);
// Rehearses the evaluation and the text sample alone, with the optimizer's state where the plan of
// the step has it.
MemoryStats rehearse_others(const TrainingConfig&, const Plan& step, const Machine&,
                            const SampleLength&);

// The plans that a policy makes; the machine decides when values are offloaded.
StepPlans make_plans(const TrainingConfig&, const Policy& = {}, const Machine& = {});

// How the run is to execute on this machine, with that plan: what was not given is chosen, except
// for the chunks of a run that resumes.  What leaves a GPU by choice goes to its host; on a cpu,
// whose host has the same memory, and to a disk, values are only sent where the options say so.
// It has to fit into the options' device.
RunRequest request_of(const RunOptions&, const Machine&, std::optional<Plan>);
// To measure the kernels of the step for that request, with the table in the user's cache.  Nothing
// is measured for a run that cannot fit.
CalibrationRequest calibration_of(const RunOptions&, const std::optional<Plan>& given = {});

// A planned run; it does not change afterwards.
struct PlannedRun : PlannedSteps {
  TrainingConfig config = {};  // with the chunks that were chosen
};

// Plans a run.
class RunPlanner {
 public:
  // Throws an error that names the settings if the plan of the request has other chunks than the
  // configuration, or offloads to a disk and no directory is given.  The policy of the request has
  // no chunks; the configuration has.
  RunPlanner(const TrainingConfig&, const RunRequest&, const SampleLength&, const Machine&);

  PlannedRun plan() { return of_run(steps_->plan()); }
  PlannedRun plan_within(size_t bytes) { return of_run(steps_->plan_within(bytes)); }
  StepPlanner& steps() { return *steps_; }

 private:
  PlannedRun of_run(PlannedSteps) const;

  TrainingConfig config_;
  std::optional<StepPlanner> steps_;
};

// Hands over the program of a step's tape that keeps every value, while its parameters exist.
void read_program(const TrainingConfig&, const std::function<void(const Program&)>&);
// What the plan of the run's step does to each layer.
std::vector<LayerGroup> explain(const PlannedRun&);

// Throws if the file exists and is not a plan, or cannot be written.
void check_plan_file(const std::filesystem::path&);
// Writes the plan of the run's step to such a file, with what it was made for.
void save_step_plan(const std::filesystem::path&, const PlannedRun&, const Machine&);

}  // namespace spool
