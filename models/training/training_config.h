#pragma once

// What a training run computes: the model, the batches, the schedule.

#include <cstdint>

#include "spool/models/families/gpt2.h"
#include "spool/models/steps/step_runner.h"

namespace spool {

struct TrainingConfig {
  Gpt2Config model = {};
  DType dtype = DType::f32;
  int64_t batch = 4;       // rows of a micro-batch
  int64_t seq = 1024;      // tokens of a row
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t steps = 1000;
  int64_t warmup = 0;  // steps
  double lr = 6e-4, min_lr = 6e-5;
  AdamWSettings optimizer = {};
  float dropout = 0;
  int64_t loss_chunk = 0;  // rows of logits that exist at a time; 0: all
  uint64_t seed = 1;

  int64_t tokens_per_step() const { return batch * seq * accumulate; }
  // The part of it that a step knows.
  StepConfig step() const;
  // Throws an Error that names the setting if the numbers do not make a run.
  void validate() const;
};

}  // namespace spool
