#pragma once

// Trains a GPT-2 on one stream: everything a run does to the device, and nothing else.  On a
// MetaStream the same calls rehearse it.

#include <vector>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluator.h"
#include "spool/models/training/planned_run.h"

namespace spool {

// GPT-2 with a micro-batch of tokens, as a training step sees it.
class TrainedGpt2 final : public StepModel {
 public:
  TrainedGpt2(const TrainingConfig&, Stream&);

  Gpt2& gpt2() { return model_; }
  BatchInput& input() { return input_; }

  std::vector<Parameter*> parameters() override { return model_.parameters(); }
  Var loss(Tape&) override;
  void upload_placeholder() override;

 private:
  Gpt2 model_;
  BatchInput input_;
  float dropout_;
};

class Trainer {
 public:
  // Allocates everything that lives between steps, and sets none of it.
  Trainer(const TrainingConfig&, const TrainingPlans&, Stream&);

  Gpt2& model() { return model_.gpt2(); }
  AdamWOptimizer& optimizer() { return runner_.optimizer(); }
  // Random weights.
  void initialise();
  // The weights of a file of this configuration.  Where weights are bf16, their masters are as
  // exact as the file.
  void initialise_from(const ModelFile&);

  // StepRunner::prepare(); after initialise().
  void prepare() { runner_.prepare(learning_rate(0)); }

  double learning_rate(int64_t step) const;

  // Enqueues step `step`, counted from 0, on rows step * accumulate * batch and on.  Each row is
  // asked for twice: to count its valid targets, and to be trained on.
  void step(int64_t step, const Rows&);
  // Result of the last step; waits for it.
  StepResult result() const { return runner_.result(); }

  Evaluator& evaluator() { return evaluator_; }

  // Host memory and disk in use; nothing where everything is kept on the device.
  MemoryStats host_memory() const { return runner_.host_memory(); }
  MemoryStats disk() const { return runner_.disk(); }

 private:
  int64_t valid_targets(int64_t step, const Rows&) const;

  TrainingConfig config_;
  Plan evaluation_;
  TrainedGpt2 model_;
  StepRunner runner_;
  Evaluator evaluator_;
};

// Rows for rehearsals: leaves the buffers as they are.
void no_rows(int64_t, std::span<int32_t> tokens, std::span<int32_t> targets);

}  // namespace spool
