#pragma once

// Trains a model on one stream: all of a run's work on the device, and nothing else.  On a
// MetaStream the same calls rehearse it.

#include <memory>
#include <vector>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluation.h"
#include "spool/models/steps/step_runner.h"
#include "spool/models/training/planned_run.h"

namespace spool {

// The plan of an evaluation's tapes.
Plan evaluation_plan(const TrainingConfig&);

// A model of text and its micro-batch, as a StepRunner sees them, with an evaluator of both.
class TrainedModel final : public Evaluation {
 public:
  // `evaluation`: the plan of the evaluator's tapes.
  TrainedModel(const TrainingConfig&, Plan evaluation, Stream&);
  Var loss(Tape&) override;

 private:
  float dropout_;
};

class Trainer {
 public:
  // Allocates everything that lives between steps, without setting it.
  Trainer(const TrainingConfig&, const StepPlans&, Stream&);

  Model& model() { return model_.model(); }
  // Of ranks that share it, what each has a part of; null: it is whole.
  const ShardedModel* shared() const { return model_.shared(); }
  Optimizer& optimizer() { return runner_.optimizer(); }
  // Initialises the weights at random.
  void initialise();
  // Loads the weights of a file of this configuration.  The f32 masters of bf16 weights get the
  // file's full precision.
  void initialise_from(const ModelFile&, const FileProgress& = {});

  // See StepRunner::prepare().  Call it after initialise().
  void prepare() { runner_.prepare(learning_rate(0)); }

  double learning_rate(int64_t step) const;

  // Enqueues step `step`, counted from 0, on accumulate * batch rows; the batch may be changed once
  // this returns.  A rank may ask all of them to stop or to save after it (StepResult).
  void step(int64_t step, const TokenBatch&, bool asks_to_stop = false, bool asks_to_save = false);
  // Enqueues step 0 on a placeholder, with the same copies, for rehearsals.
  void rehearse_step();
  // The result of one of the last two steps; see StepRunner::result().
  StepResult result(int64_t step) { return runner_.result(step); }
  // The result of the last step; waits for it.
  StepResult result() const { return runner_.result(); }
  bool runs_ahead() const { return runner_.runs_ahead(); }

  // Calls work(), which may read the optimizer's state: with ranks on rank 0 alone, while the
  // others answer.  Returns whether it was done; if it throws, that is false on the others.
  bool share_state(const std::function<void()>& work) { return runner_.share_state(work); }

  Evaluator& evaluator() { return model_.evaluator(); }

  // Host memory and disk in use; zero if everything is on the device.
  MemoryStats host_memory() const { return runner_.host_memory(); }
  MemoryStats disk() const { return runner_.disk(); }

 private:
  TrainingConfig config_;
  StepRunner runner_;
  TrainedModel& model_;  // the runner's
};

}  // namespace spool
