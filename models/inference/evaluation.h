#pragma once

// A model with its input and their evaluator, alone or shared by ranks.

#include <memory>
#include <optional>

#include "spool/autograd/homes.h"
#include "spool/models/inference/evaluator.h"
#include "spool/models/steps/step.h"

namespace spool {

// Ranks that share it see it as a step's model: they cut it as the loss of training is cut.
class Evaluation : public StepModel {
 public:
  // The plan comes from plan_evaluation(), or is empty.
  Evaluation(const EvaluationShape&, Plan, Stream&);

  Model& model() { return *model_; }
  BatchInput& input() { return input_; }
  Evaluator& evaluator() { return evaluator_; }
  // Of ranks that share it, the model of which each has a part; null: it is whole.
  const ShardedModel* shared() const { return shared_; }

  Parameters& parameters() override { return model_->parameters(); }
  void initialise(uint64_t seed) override { model_->initialise(seed); }
  Var loss(Tape&) override;
  void upload_placeholder() override { input_.upload_placeholder(); }
  void is_divided(const ShardedModel&) override;

 private:
  std::shared_ptr<Model> model_;
  BatchInput input_;
  Plan plan_;
  ChunkRows chunks_;
  Evaluator evaluator_;
  const ShardedModel* shared_ = nullptr;
};

// On a stream, this rank's part where ranks share it; with parameters on the host, if the shape
// says so.
class PlacedEvaluation {
 public:
  PlacedEvaluation(const EvaluationShape&, Plan, Stream&);
  Evaluation& operator*() const { return *evaluation_; }
  Evaluation* operator->() const { return evaluation_; }
  // In use; zero if everything is on the device.
  MemoryStats host_memory() const { return link_ ? link_->memory() : MemoryStats{}; }

 private:
  std::unique_ptr<StepModel> model_;
  std::unique_ptr<HostLink> link_;  // if parameters live on the host
  std::unique_ptr<Homes> homes_;
  Evaluation* evaluation_;
};

// Evaluates a batch for the mean loss, then one for the loss of each target; on any stream.
void rehearse_evaluation(const EvaluationShape&, const Plan&, Stream&);

}  // namespace spool
