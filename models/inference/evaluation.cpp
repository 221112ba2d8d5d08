#include "spool/models/inference/evaluation.h"

#include <utility>

namespace spool {

Evaluation::Evaluation(const EvaluationShape& shape, Plan plan, Stream& stream)
    : model_(shape.model.make(shape.dtype, stream, shape.seq)),
      input_(shape.batch, shape.seq, stream, shape.packed),
      plan_(std::move(plan)),
      chunks_(shape.chunks),
      evaluator_(*model_, input_, plan_, stream) {}

Var Evaluation::loss(Tape& tape) {
  return model_->loss(text_on(tape, input_), tape.input(input_.targets));
}

void Evaluation::is_divided(const ShardedModel& model) {
  shared_ = &model;
  evaluator_.divide(model, chunks_);
}

PlacedEvaluation::PlacedEvaluation(const EvaluationShape& shape, Plan plan, Stream& stream) {
  StepDescription step;
  step.make_model = [&](Stream& s) {
    return std::make_unique<Evaluation>(shape, std::move(plan), s);
  };
  step.shards = shape.shards;
  model_ = make_step_model(step, stream);
  evaluation_ = static_cast<Evaluation*>(&model_->whole());
}

void rehearse_evaluation(const EvaluationShape& shape, const Plan& plan, Stream& stream) {
  const PlacedEvaluation evaluation(shape, plan, stream);
  evaluation->evaluator().rehearse_mean_loss();
  evaluation->evaluator().rehearse_losses();
}

}  // namespace spool
