#include "tests/models/training/training_testing.h"

#include "spool/models/inference/generator.h"

namespace spool::testing {

TrainingConfig small() {
  return {.model = {.layers = 2, .heads = 2, .channels = 16, .context = 24, .vocabulary = 50},
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

void rows(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) {
  Random random(77, static_cast<uint64_t>(index));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random.next() % 50);
    targets[i] = (tokens[i] + 1) % 50;
  }
}

Machine slow_machine(const Architecture& architecture) {
  return {.architecture = architecture, .f32_flops = 1e9, .launch_seconds = 1e-4};
}

TrainingPlans laid_out_plans(const TrainingConfig& config, const Machine& machine) {
  TrainingPlans plans = make_plans(config);
  plans.layout = lay_out_step(config, plans, machine);
  return plans;
}

Losses train(const TrainingConfig& config, Stream& stream, bool graph) {
  TrainingPlans plans = laid_out_plans(config, {.architecture = stream.architecture()});
  plans.graph = graph;
  return train(config, plans, stream);
}

Losses train(const TrainingConfig& config, const TrainingPlans& plans, Stream& stream) {
  Losses all;
  {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    for (int64_t step = 0; step < config.steps; ++step) {
      trainer.step(step, rows);
      const StepResult result = trainer.result();
      EXPECT_TRUE(result.finite);
      all.losses.push_back(result.loss);
      all.norms.push_back(result.grad_norm);
    }
    all.state = state_bytes(trainer.model().parameters(), trainer.optimizer());
    trainer.evaluator().evaluate(2 * config.batch, rows);
    all.validation = trainer.evaluator().loss_sum();
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
