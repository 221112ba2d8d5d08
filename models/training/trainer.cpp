#include "spool/models/training/trainer.h"

#include <algorithm>

#include "spool/models/data/batches.h"

namespace spool {

void no_rows(int64_t, std::span<int32_t>, std::span<int32_t>) {}

TrainedGpt2::TrainedGpt2(const TrainingConfig& config, Plan evaluation, Stream& stream)
    : model_(config.model, config.dtype, stream),
      input_(config.batch, config.seq, stream),
      dropout_(config.dropout),
      evaluation_(std::move(evaluation)),
      evaluator_(model_, input_, evaluation_, stream) {}

Var TrainedGpt2::loss(Tape& tape) {
  return model_.loss(tape.input(input_.tokens), tape.input(input_.targets), dropout_);
}

void TrainedGpt2::upload_placeholder() {
  input_.upload([](int64_t, std::span<int32_t> tokens, std::span<int32_t> targets) {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, 0);
  });
}

Trainer::Trainer(const TrainingConfig& config, const TrainingPlans& plans, Stream& stream)
    : config_(config),
      model_(config, plans.evaluation, stream),
      runner_(model_, config.step(), plans, stream) {}

void Trainer::initialise() {
  model().initialise(config_.seed);
  optimizer().initialise();
}

void Trainer::initialise_from(const ModelFile& file) {
  file.load(model());
  optimizer().initialise();
  if (!optimizer().masters().empty()) file.load(model(), optimizer().masters());
}

double Trainer::learning_rate(int64_t step) const {
  return cosine_schedule(step, config_.steps, config_.warmup, config_.lr, config_.min_lr);
}

int64_t Trainer::valid_targets(int64_t step, const Rows& rows) const {
  const int64_t count = config_.batch * config_.accumulate, first = step * count;
  std::vector<int32_t> tokens(static_cast<size_t>(config_.seq)), targets(tokens.size());
  int64_t valid = 0;
  for (int64_t row = first; row < first + count; ++row) {
    rows(row, tokens, targets);
    valid += config_.seq - std::ranges::count(targets, ignored_target);
  }
  return valid;
}

void Trainer::step(int64_t step, const Rows& rows) {
  const auto upload = [&](int64_t micro) {
    const int64_t first = (step * config_.accumulate + micro) * config_.batch;
    model_.input().upload(
        [&](int64_t b, auto tokens, auto targets) { rows(first + b, tokens, targets); });
  };
  runner_.run(
      {.number = step, .learning_rate = learning_rate(step), .targets = valid_targets(step, rows)},
      upload);
}

}  // namespace spool
