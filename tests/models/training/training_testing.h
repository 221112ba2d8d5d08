#pragma once

// A small run, as the tests of training share it.

#include <vector>

#include "spool/models/training/trainer.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// Two layers on made-up rows.
TrainingConfig small();
// In bf16, its weights rounded stochastically.
TrainingConfig without_masters(TrainingConfig);
void rows(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets);

// With the layout of a step on such a machine.
TrainingPlans laid_out_plans(const TrainingConfig&, const Machine&);

// What a run leaves.
struct Losses {
  std::vector<float> losses, norms;
  double validation = 0;
  std::vector<int32_t> text;
  size_t peak = 0;
  bool operator==(const Losses&) const = default;
};

// All steps, an evaluation, and a text of this length.
constexpr SampleLength sample{.prompt = 1, .drawn = 30};
Losses train(const TrainingConfig&, const TrainingPlans&, Stream&);
// By the plans of a run from the command line.
Losses train(const TrainingConfig&, Stream&, bool graph = true);

}  // namespace spool::testing
