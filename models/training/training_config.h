#pragma once

// The settings that define what a training run computes: model, batches, schedule, optimizer.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "spool/models/families/model_config.h"
#include "spool/models/inference/evaluator.h"
#include "spool/models/optimizers/learning_rate.h"
#include "spool/models/steps/step_executor.h"
#include "spool/models/steps/step_request.h"

namespace spool {

struct TrainingConfig {
  ModelConfig model = {};
  DType dtype = DType::f32;
  int64_t batch = 4;   // rows of a micro-batch
  int64_t seq = 1024;  // tokens of a row
  // Whether several texts share a row (data/example_rows.h), as the data and its settings say.
  bool packed = false;
  int64_t accumulate = 1;  // micro-batches of a step, of all ranks
  int ranks = 0;           // that share them; 0: one computes alone
  // How groups of them share each micro-batch; none: each has micro-batches of its own.
  std::optional<StepShards> shards = {};
  int zero = 2;  // what ranks divide; see StepConfig
  int64_t steps = 1000;
  int64_t warmup = 0;  // steps
  double lr = 6e-4, min_lr = 6e-5;
  LrSchedule schedule = LrSchedule::cosine;
  double decay_share = 0.2;  // of the steps, in which wsd decays
  AdamWSettings optimizer = {};
  float dropout = 0;
  // Nodes of a step's tape are in it only if those of the MLPs are not set: a search chose them for
  // a budget.
  StepChunks chunks = {};
  // The chunks of an evaluation: chosen for a budget and stored beside the settings, as they may
  // change the last bits of its loss.  None: not chosen yet, all rows.
  std::optional<ChunkRows> evaluation = {};
  uint64_t seed = 1;
  // On a GPU, lets attention's backward form sums in any order, for less memory on most; then the
  // losses of two runs may differ.
  bool nondeterministic = false;
  SumOrder sum_order() const { return nondeterministic ? SumOrder::any : SumOrder::fixed; }
  int64_t rows_per_step() const { return batch * accumulate; }
  int64_t tokens_per_step() const { return rows_per_step() * seq; }
  LearningRate learning_rate() const;
  // Those of the step's tape: of ranks that share a micro-batch, without those of nodes, which are
  // of the model's.
  StepChunks chunks_of_tape() const {
    return shards ? StepChunks{.loss_rows = chunks.loss_rows, .mlp_rows = chunks.mlp_rows} : chunks;
  }
  int neighbours() const { return shards ? shards->mesh.ranks() : 1; }
  // Groups of ranks, or ranks, that have micro-batches of their own; at least 1.
  int replicas() const { return std::max(ranks / neighbours(), 1); }
  // The part that a StepExecutor needs.
  StepConfig step() const;
  // Throws an error that names the settings if one is out of range or two contradict each other.
  void validate() const;
};

}  // namespace spool
