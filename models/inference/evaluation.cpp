#include "spool/models/inference/evaluation.h"

#include <utility>

#include "spool/planner/home_units.h"
#include "spool/runtime/integer.h"

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

namespace {

// Where the parameters live: units and nothing else.
Plan homes_of_evaluation(const EvaluationShape& shape) {
  Plan plan;
  if (!shape.parameters_on_device) return plan;
  check_setting(!shape.shards, {"parameters", "mesh"},
                "each of the ranks that share a batch has its part of the parameters on its "
                "device; leave out where they live, or let each rank have batches of its own");
  place_homes(plan, evaluation_program(shape), {.bytes_on_device = *shape.parameters_on_device});
  for (PlannedUnit& unit : plan.units) unit.gradients_away = false;
  return plan;
}

// Of the host, for all of the parameters that live there.
size_t bytes_away(const Parameters& parameters, const std::vector<bool>& away) {
  size_t bytes = 0;
  for (size_t i = 0; i < away.size(); ++i) {
    if (away[i]) bytes += round_up(parameters[i]->spec().nbytes(), HostLink::alignment);
  }
  return bytes;
}

}  // namespace

PlacedEvaluation::PlacedEvaluation(const EvaluationShape& shape, Plan plan, Stream& stream) {
  StepDescription step;
  step.make_model = [&](Stream& s) {
    return std::make_unique<Evaluation>(shape, std::move(plan), s);
  };
  step.shards = shape.shards;
  const Plan homes = homes_of_evaluation(shape);
  model_ = make_step_model(step, stream, homes);
  if (has_homes(homes)) {
    Parameters& all = model_->parameters();
    link_ = std::make_unique<HostLink>(stream, bytes_away(all, parameters_away(homes)));
    homes_ = std::make_unique<Homes>(all, *link_, homes, /*micro_batches=*/1);
  }
  evaluation_ = static_cast<Evaluation*>(&model_->whole());
}

void rehearse_evaluation(const EvaluationShape& shape, const Plan& plan, Stream& stream) {
  const PlacedEvaluation evaluation(shape, plan, stream);
  evaluation->evaluator().rehearse_mean_loss();
  evaluation->evaluator().rehearse_losses();
}

}  // namespace spool
