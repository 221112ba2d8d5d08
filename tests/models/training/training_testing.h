#pragma once

// A small training run on made-up rows, for tests of training.

#include <filesystem>
#include <vector>

#include "spool/models/training/trainer.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// Two layers, five steps.
TrainingConfig small();
// The same in bf16 with stochastic rounding, so without master weights.
TrainingConfig without_masters(TrainingConfig);
// The made-up rows of a step.
TokenBatch batch_of(const TrainingConfig&, int64_t step);

// A machine so slow that every value has time to be copied out and back.
Machine slow_machine(const Architecture&);

// The plans of a run with the layout of its step.
StepPlans laid_out_plans(const TrainingConfig&, const Machine&);
// Rehearses a run under these plans: a step, an evaluation and a text sample.
Report rehearse_training(const TrainingConfig&, const StepPlans&, const Machine&,
                         const SampleLength& = {});

// The results of a run: its numbers, which == compares to the bit, and its peaks.
struct Losses {
  std::vector<float> losses, norms;
  double validation = 0;
  std::vector<int32_t> text;  // generated after the last step
  Bytes state;                // of parameters and optimizer, after the last step
  size_t peak = 0, host_peak = 0;
  bool operator==(const Losses& other) const {
    return losses == other.losses && norms == other.norms && validation == other.validation &&
           text == other.text && state == other.state;
  }
};

// Runs all steps, an evaluation, and the generation of a text of this length.
constexpr SampleLength sample{.prompt = 1, .drawn = 30};
PlannedRun plan_run(const TrainingConfig&, const StepRequest&, const Machine&,
                    const SampleLength& = sample);
Losses train(const TrainingConfig&, const StepPlans&, Stream&);
// The same with the plans of a run from the command line.
Losses train(const TrainingConfig&, Stream&, bool graph = true);

}  // namespace spool::testing
