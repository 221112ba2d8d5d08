#pragma once

// Trains a GPT-2 on one stream: everything a run does to the device, and nothing else.  On a
// MetaStream the same calls rehearse it.

#include <functional>
#include <optional>
#include <span>

#include "spool/models/families/gpt2.h"
#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluator.h"
#include "spool/models/optimizers/adamw.h"
#include "spool/models/steps/step_graphs.h"
#include "spool/models/training/training_plans.h"
#include "spool/planner/rehearsal.h"

namespace spool {

struct StepResult {
  float loss = 0;       // mean over the step's targets, nats
  float grad_norm = 0;  // before clipping
  bool finite = false;  // whether the loss and all gradients are; if not, nothing was changed
};

class Trainer {
 public:
  // Allocates all that lives between steps; sets none of it.
  Trainer(const TrainingConfig&, const TrainingPlans&, Stream&);

  Gpt2& model() { return model_; }
  AdamWOptimizer& optimizer() { return optimizer_; }
  void initialise();
  // With the weights of a file of this configuration; where weights are bf16, their masters are as
  // exact as the file.
  void initialise_from(const ModelFile&);

  // Before the first step, which sees to it otherwise: on a device that records steps, one that
  // changes nothing, in which libraries choose their algorithms and may refuse.  After
  // initialise().
  void prepare();

  double learning_rate(int64_t step) const;

  // Enqueues step `step`, counted from 0, on rows step * accumulate * batch and on, each of which
  // is asked for twice: to count the targets that are valid, and to be trained on.
  void step(int64_t step, const Rows&);
  // Of the last step, when it is done.
  StepResult result() const;

  Evaluator& evaluator() { return evaluator_; }

  // What is taken of the host's memory, and of the disk; nothing where all is on the device.
  MemoryStats host_memory() const { return link_ ? link_->memory() : MemoryStats{}; }
  MemoryStats disk() const { return offloader_ ? offloader_->disk() : MemoryStats{}; }

 private:
  void upload(int64_t step, int64_t micro, const Rows&);
  void enqueue_micro_step(int64_t micro);
  void run_micro_step(size_t phase);

  TrainingConfig config_;
  TrainingPlans plans_;
  Stream& stream_;
  Gpt2 model_;
  std::unique_ptr<HostLink> link_;        // where something is not kept on the device
  std::unique_ptr<Offloader> offloader_;  // likewise, of what backward needs
  AdamWOptimizer optimizer_;
  BatchInput input_;
  Evaluator evaluator_;
  Tensor loss_, loss_scale_, random_;  // f32 (1), f32 (1), i32 (4)
  StepGraphs graphs_;
  bool prepared_ = false;
};

// What a rehearsal reads: nothing.
void no_rows(int64_t, std::span<int32_t> tokens, std::span<int32_t> targets);

// Of texts that a run writes: the tokens it is given and those it draws; none if these are 0.
struct SampleLength {
  int64_t prompt = 0, drawn = 0;
};

// What a run of this configuration takes: its peak, over a step, an evaluation, and writing such a
// text; and the time of one step.
Report rehearse_training(const TrainingConfig&, const TrainingPlans&, const Machine&,
                         const SampleLength& = {});

}  // namespace spool
