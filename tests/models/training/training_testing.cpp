#include "tests/models/training/training_testing.h"

#include "spool/models/families/gpt2.h"
#include "spool/models/inference/generator.h"
#include "tests/models/data/token_list.h"

namespace spool::testing {
namespace {

// Makes texts of 7 tokens of each row, and one of what is left.
void pack(TokenBatch& batch) {
  constexpr int32_t length = 7;
  batch.positions.resize(batch.tokens.size());
  batch.first.resize(batch.tokens.size());
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const auto at = static_cast<int32_t>(static_cast<int64_t>(i) % batch.T);
    batch.positions[i] = at % length;
    batch.first[i] = at - at % length;
  }
}

// Two batches, of which the last row is half of one.
class RowsToValidate final : public RowSource {
 public:
  explicit RowsToValidate(const TrainingConfig& config)
      : rows_(counting((2 * config.batch - 1) * config.seq + config.seq / 2 + 1, /*vocabulary=*/50),
              config.seq),
        packed_(config.packed) {}
  int64_t rows() const override { return rows_.rows(); }
  int64_t targets(int64_t row) const override { return rows_.targets(row); }
  void fill(Range rows, TokenBatch& batch) const override {
    rows_.fill(rows, batch);
    if (packed_) pack(batch);
  }

 private:
  ValidationRows rows_;
  bool packed_;
};

// The configuration with the evaluation's rows that a planner chooses without a budget, if it has
// none.
TrainingConfig with_evaluation(TrainingConfig config, const StepPlans& plans,
                               const Machine& machine) {
  if (config.evaluation) return config;
  const size_t peak = foretell_step(describe_step(config), plans, machine).memory.peak;
  config.evaluation = RestOfRun(config, sample, machine).evaluation_rows(plans.step, peak, peak);
  return config;
}

}  // namespace

TrainingConfig small() {
  return {
      .model = Gpt2Config{.layers = 2, .heads = 2, .channels = 16, .context = 24, .vocabulary = 50},
      .batch = 3,
      .seq = 20,
      .steps = 5,
      .lr = 1e-2,
      .min_lr = 1e-3};
}

TrainingConfig without_masters(TrainingConfig config) {
  config.dtype = DType::bf16;
  config.optimizer.rounding = Rounding::stochastic;
  return config;
}

TokenBatch batch_of(const TrainingConfig& config, int64_t step) {
  const int64_t rows = config.rows_per_step();
  TokenBatch batch;
  batch.clear(rows, config.seq);
  size_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    Random random(77, static_cast<uint64_t>(step * rows + row));
    for (int64_t t = 0; t < config.seq; ++t, ++at) {
      batch.tokens[at] = static_cast<int32_t>(random.next() % 50);
      batch.targets[at] = (batch.tokens[at] + 1) % 50;
    }
  }
  batch.valid = rows * config.seq;
  if (config.packed) pack(batch);
  return batch;
}

Machine slow_machine(const Architecture& architecture) {
  return {.architecture = architecture, .f32_flops = 1e9, .launch_seconds = 1e-4};
}

StepPlans laid_out_plans(const TrainingConfig& config, const Machine& machine) {
  StepPlans plans = make_plans(config);
  plans.layout = lay_out_step(describe_step(config), plans, machine);
  return plans;
}

Report rehearse_training(const TrainingConfig& config, const StepPlans& plans,
                         const Machine& machine, const SampleLength& length) {
  Report report = foretell_step(describe_step(config), plans, machine);
  const TrainingConfig chosen = with_evaluation(config, plans, machine);
  const MemoryStats others = rehearse_others(chosen, plans.step, machine, length);
  if (others.peak > report.memory.peak) report.memory = others;
  return report;
}

PlannedRun plan_run(const TrainingConfig& config, const StepRequest& request,
                    const Machine& machine, const SampleLength& length) {
  return RunPlanner(config, {.steps = request}, length, machine).plan();
}

Losses train(const TrainingConfig& config, Stream& stream, bool graph) {
  StepPlans plans = laid_out_plans(config, {.architecture = stream.architecture()});
  plans.graph = graph;
  return train(config, plans, stream);
}

Losses train(const TrainingConfig& config, const StepPlans& plans, Stream& stream) {
  Losses all;
  {
    const Machine machine{.architecture = stream.architecture()};
    Trainer trainer(with_evaluation(config, plans, machine), plans, stream);
    trainer.initialise();
    for (int64_t step = 0; step < config.steps; ++step) {
      trainer.step(step, batch_of(config, step));
      const StepResult result = trainer.result();
      EXPECT_TRUE(result.finite);
      all.losses.push_back(result.loss);
      all.norms.push_back(result.grad_norm);
    }
    all.state = state_bytes(trainer.model().parameters(), trainer.optimizer());
    all.validation = trainer.evaluator().mean_loss(RowsToValidate(config));
    all.text = {1};
    Random random(1);
    Generator(trainer.model(), stream).extend(all.text, sample.drawn, {.top_k = 5}, random);
    EXPECT_EQ(all.text.size(), static_cast<size_t>(sample.prompt + sample.drawn));
    all.host_peak = trainer.host_memory().peak;
  }
  EXPECT_EQ(stream.memory().live, 0u);
  all.peak = stream.memory().peak;
  return all;
}

}  // namespace spool::testing
