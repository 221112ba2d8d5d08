#pragma once

// Computes a model's losses over rows of tokens.

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/data/batches.h"
#include "spool/models/families/model.h"
#include "spool/models/steps/step.h"
#include "spool/planner/rehearsal.h"

namespace spool {

// Numbers of rows that are live at a time: of logits, and of each block's MLP; 0: all.
struct ChunkRows {
  int64_t loss = 0, mlp = 0;
  bool operator==(const ChunkRows&) const = default;
};

// The work of an evaluator: a model, and the shape of a batch of tokens.
struct EvaluationShape {
  ModelConfig model = {};
  DType dtype = DType::f32;  // of the computation
  int64_t batch = 4;         // rows
  int64_t seq = 0;           // tokens of a row
  bool packed = false;       // rows have several texts
  // How ranks share each batch; none: one computes alone.  Then the evaluation runs in these
  // chunks, and has no plan.
  std::optional<StepShards> shards = {};
  ChunkRows chunks = {};
  // Of the parameters so many bytes stay on the device, and others live on the host
  // (planner/home_units.h); none: all stay.
  std::optional<size_t> parameters_on_device = {};
};

class Evaluator {
 public:
  // The arguments must outlive the evaluator.  The plan comes from plan_evaluation(), or is empty.
  Evaluator(Model&, BatchInput&, const Plan&, Stream&);

  // The mean loss over all targets of the rows, which are read and evaluated a batch at a time.
  // Ranks share the batches, and all of them get the mean, with the bits of one that computes
  // alone.  on_progress is called with the number of rows done: on each rank as often, after one
  // batch of each.
  double mean_loss(const RowSource&, const std::function<void(int64_t rows)>& on_progress = {});
  // Enqueues the loss of each target of one batch of the input's shape, f32 (B, T); 0 for ignored
  // targets.
  Tensor losses(const TokenBatch&);

  // From now on the model is that, of which several ranks have parts, and neighbours share each
  // batch; it outlives the evaluator.  In place of its plan it has these chunks.
  void divide(const ShardedModel&, const ChunkRows&);

  // Evaluates one placeholder batch in either way, for rehearsals.
  void rehearse_mean_loss();
  void rehearse_losses();

 private:
  Var loss(Tape&, Reduction);
  Var whole_loss(Tape&, Reduction);
  struct SharedLoss {
    std::unique_ptr<ShardedPass> pass = {};
    Plan plan = {};
  };
  const SharedLoss& shared_loss(Reduction);
  Tape tape(Reduction);
  void begin_sum();
  void fill(Range batch, const RowSource&);
  int neighbours() const;  // ranks that share each batch
  double sum_of_ranks(const std::vector<double>& own, int64_t batches) const;
  void add_losses();
  Tensor losses_of_input();

  Model& model_;
  const ShardedModel* divided_ = nullptr;
  ChunkRows chunks_ = {};                        // of it
  std::map<Reduction, SharedLoss> losses_ = {};  // of it
  BatchInput& input_;
  const Plan& plan_;
  Stream& stream_;
  Tensor loss_sum_;   // f64 (1)
  TokenBatch batch_;  // the last one that was read
};

// The rows on a tape, as a model reads them.
Text text_on(Tape&, const BatchInput&);

// The program of an evaluator's tape that computes alone.
Program evaluation_program(const EvaluationShape&);
// The plan of that tape.
Plan plan_evaluation(const Program&, const ChunkRows&);
Plan plan_evaluation(const EvaluationShape&, const ChunkRows&);

}  // namespace spool
