#pragma once

// Plans a training run by steps/step_planner.h: its steps, evaluations and text samples.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_planner.h"
#include "spool/models/training/exchange_foretold.h"
#include "spool/models/training/rest_of_run.h"
#include "spool/models/training/split_choice.h"
#include "spool/planner/report/explanation.h"

namespace spool {

struct RunOptions;
struct ShardingChoice;  // sharding_choice.h

// A training step of this configuration; `evaluation` is the plan for evaluations.
StepDescription describe_step(const TrainingConfig&, const Plan& evaluation = {});

// A policy's plans; the machine's clock decides when values are offloaded.
StepPlans make_plans(const TrainingConfig&, const Policy& = {}, const Machine& = {});

// The request for a run on this machine, with a given plan if there is one.  What is not set is
// chosen, except the chunks of a resumed run.  A search offloads from a GPU to its host; to a disk,
// or on a cpu, whose host has the same memory, values are only offloaded if the options say so.
// The run must fit into the options' device.
RunRequest request_of(const RunOptions&, const Machine&, std::optional<Plan>);
// Leaves each of the ranks of a machine its part of the memory.
void divide_memory(RunRequest&, int ranks);
// Of ranks on devices of their own, the least that one of them has counts; 0: nothing is known.
void limit_to_least(RunRequest&, size_t bytes);
// Measures the kernels of the step of that request, on a sample of the model
// (calibration_samples.h), with the table in the user's cache.  Nothing is measured for a run that
// cannot fit.
CalibrationRequest calibration_of(const RunOptions&, const std::optional<Plan>& given = {});

// A planned run, which does not change afterwards.
struct PlannedRun : PlannedSteps {
  TrainingConfig config = {};             // with the chunks that were chosen, also of evaluations
  std::optional<SplitChoice> split = {};  // if its micro-batches were chosen
  std::optional<ExchangeForetold> exchange = {};        // of a run on ranks
  std::shared_ptr<const ShardingChoice> sharding = {};  // if how they share it was chosen
};

// Plans a run.
class RunPlanner {
 public:
  // Throws an error that names the settings if the request's plan has other chunks than the
  // configuration, or offloads to a disk without a directory.  Chunks are set by the configuration,
  // not by the request's policy; those of its evaluations are kept while they fit.
  RunPlanner(const TrainingConfig&, const RunRequest&, const SampleLength&, const Machine&);

  PlannedRun plan();
  // The same in two parts, as a StepPlanner's.
  PlannedRun plan_only();
  void compare(PlannedRun& run) { steps_->compare(run); }
  PlannedRun plan_within(size_t bytes) { return of_run(steps_->plan_within(bytes)); }
  StepPlanner& steps() { return *steps_; }

 private:
  PlannedRun of_run(PlannedSteps) const;

  TrainingConfig config_;
  Machine machine_;
  std::shared_ptr<RestOfRun> rest_;
  std::optional<StepPlanner> steps_;
};

// Says of a run on ranks that it has more micro-batches than its model would have without them.
void tell_rounding(PlannedRun&, const RunOptions&);

// Of the tape of a micro-batch as the model has it, on any ranks.
uint64_t fingerprint_of_model(TrainingConfig);
// Calls back with the program of a rank's step that keeps every value, while its parameters exist.
void read_program(const TrainingConfig&, const std::function<void(const Program&)>&);
// What the plan of the run's step does to each layer.
std::vector<LayerGroup> explain(const PlannedRun&);

// Throws if the file exists and is not a plan, or cannot be written.
void check_plan_file(const std::filesystem::path&);
// Writes the plan of the run's step to a file, with what it was made for.
void save_step_plan(const std::filesystem::path&, const PlannedRun&, const Machine&);

}  // namespace spool
