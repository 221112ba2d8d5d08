#include "spool/models/training/trainer.h"

#include "spool/models/steps/files/state_tensors.h"

namespace spool {

namespace {

EvaluationShape evaluated_shape(const TrainingConfig& config) {
  return {.model = config.model,
          .dtype = config.dtype,
          .batch = config.batch,
          .seq = config.seq,
          .packed = config.packed,
          .chunks = config.evaluation.value_or(ChunkRows{})};
}

}  // namespace

Plan evaluation_plan(const TrainingConfig& config) {
  if (config.shards) return {};  // it has chunks of its own
  const EvaluationShape shape = evaluated_shape(config);
  return plan_evaluation(shape, shape.chunks);
}

TrainedModel::TrainedModel(const TrainingConfig& config, Plan evaluation, Stream& stream)
    : Evaluation(evaluated_shape(config), std::move(evaluation), stream), dropout_(config.dropout) {
  model().set_sum_order(config.sum_order());
}

Var TrainedModel::loss(Tape& tape) {
  return model().loss(text_on(tape, input()), tape.input(input().targets), dropout_);
}

Trainer::Trainer(const TrainingConfig& config, const StepPlans& plans, Stream& stream)
    : config_(config),
      runner_(describe_step(config, evaluation_plan(config)), plans, stream),
      model_(runner_.model<TrainedModel>()) {}

void Trainer::initialise() { runner_.initialise(); }

void Trainer::initialise_from(const ModelFile& file, const FileProgress& progress) {
  file.load(model(), progress);
  const bool has_adapters = bool(model().config().lora());
  if (has_adapters && !file.adapter()) model().parameters().initialise_trained(config_.seed);
  optimizer().initialise();
  if (!has_masters(optimizer())) return;
  if (!has_adapters) {
    file.load(model(), exact_parameters(optimizer(), model().parameters()), progress);
  } else if (file.adapter()) {
    file.adapter()->load(stored(model(), masters(optimizer(), model().parameters())));
  }
}

double Trainer::learning_rate(int64_t step) const { return config_.learning_rate().at(step); }

void Trainer::step(int64_t step, const TokenBatch& batch, bool asks_to_stop, bool asks_to_save) {
  check(batch.T == config_.seq && batch.rows() == config_.rows_per_step(), "a step of ",
        config_.rows_per_step(), " rows of ", config_.seq, " tokens was given a batch of ",
        batch.rows(), " rows of ", batch.T);
  runner_.run(
      {.number = step,
       .learning_rate = learning_rate(step),
       .targets = batch.valid,
       .asks_to_stop = asks_to_stop,
       .asks_to_save = asks_to_save},
      [&](int64_t micro) { model_.input().upload(batch, /*first=*/micro * config_.batch); });
}

void Trainer::rehearse_step() {
  runner_.run({.learning_rate = learning_rate(0), .targets = config_.tokens_per_step()},
              [&](int64_t) { model_.upload_placeholder(); });
}

}  // namespace spool
