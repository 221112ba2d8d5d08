#pragma once

// A model loaded from a file, ready to be evaluated: its weights and an evaluator, in an arena of
// exactly the size that they need, or of a budget that they are made to fit into.

#include <memory>
#include <optional>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/evaluation_plan.h"

namespace spool {

class LoadedModel {
 public:
  struct Options {
    DType dtype = DType::f32;  // of the computation, f32 or bf16
    int64_t batch = 4;         // rows
    int64_t seq = 0;           // tokens of a row; 0: the model's context
    bool packed = false;       // rows have several texts
    Device device = {};
    int threads = 0;    // of a CPU; 0: one per usable core
    size_t memory = 0;  // budget in bytes; 0: what 512 rows of logits at a time need
    std::shared_ptr<Communicator> ranks = {};  // that share batches with this one
    // How they share each batch; none: each has batches of its own.
    std::optional<StepShards> shards = {};
    std::optional<size_t> parameters_on_device = {};  // see EvaluationShape
  };

  // Throws if the options or the file's tensors do not suit the model, or if memory does not
  // suffice even in chunks.
  LoadedModel(const ModelFile&, const Options&, const FileProgress& loading = {});

  Evaluator& evaluator() { return (*work_)->evaluator(); }
  int64_t batch() const { return options_.batch; }
  int64_t seq() const { return options_.seq; }
  // How the evaluation was made to fit the budget; nothing without a budget.
  const std::optional<PlannedEvaluation>& planned() const { return planned_; }
  MemoryStats memory() const { return stream_->memory(); }
  MemoryStats host_memory() const { return work_->host_memory(); }

 private:
  Options options_;
  Plan plan_;
  std::optional<PlannedEvaluation> planned_;
  std::unique_ptr<Stream> stream_;
  std::optional<PlacedEvaluation> work_;
};

}  // namespace spool
