#include "tests/models/training/homes_testing.h"

#include "spool/models/families/families.h"
#include "spool/models/families/llama_config.h"
#include "spool/models/steps/step_runner.h"
#include "spool/planner/home_units.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"

namespace spool::testing {
namespace {

template <class T>
T one_of(Random& random, std::initializer_list<T> all) {
  return all.begin()[random.next() % all.size()];
}
bool toss(Random& random, uint32_t of = 2) { return random.next() % of == 0; }

ModelConfig model_of(int number) {
  if (number == 0) return model_preset("gpt2-tiny")->config;
  if (number == 1) return model_preset("llama-tiny")->config;
  return LlamaConfig{.tied = false};
}

OptimizerSettings optimizer_of(Random& random, const AdamWSettings& adamw) {
  if (toss(random)) return adamw;
  return SgdSettings{
      .momentum = toss(random) ? 0.9 : 0.0, .clip = adamw.clip, .rounding = adamw.rounding};
}

}  // namespace

TokenBatch made_up_batch(const TrainingConfig& config, uint64_t step) {
  Random random(/*seed=*/1, step);
  TokenBatch batch;
  batch.clear(config.rows_per_step(), config.seq);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.tokens[i] = static_cast<int32_t>(random.next() % 256);
    batch.targets[i] = (batch.tokens[i] * 7 + 1) % 256;
  }
  batch.valid = std::ssize(batch.targets);
  return batch;
}

Machine machine_here() { return {.architecture = this_processor(2)}; }

HomesCase::HomesCase(uint64_t seed) {
  Random random(/*seed=*/46, seed);
  draw_run(random);
  draw_plans(random);
}

void HomesCase::draw_run(Random& random) {
  const int model = static_cast<int>(random.next() % 3);
  config.model = model_of(model);
  config.dtype = one_of(random, {DType::f32, DType::bf16, DType::bf16});
  if (config.dtype == DType::bf16 && toss(random)) {
    config.optimizer.rounding = Rounding::stochastic;
  }
  config.batch = one_of<int64_t>(random, {1, 2});
  config.seq = one_of<int64_t>(random, {16, 32});
  config.accumulate = one_of<int64_t>(random, {1, 3, 4});
  config.optimizer.clip = one_of(random, {0.0, 1.0});
  config.dropout = one_of(random, {0.0f, 0.1f});
  config.chunks.loss_rows = one_of<int64_t>(random, {0, 8});
  config.chunks.mlp_rows = one_of<int64_t>(random, {0, 0, 8});
  config.lr = 1e-3;
  step = describe_step(config);
  step.config.optimizer = optimizer_of(random, config.optimizer);
  words = sentence("model ", model, ", ", name(config.dtype), ", ", name(config.optimizer.rounding),
                   ", B ", config.batch, ", T ", config.seq, ", ", config.accumulate,
                   " micro-batches, clip ", config.optimizer.clip, ", dropout ", config.dropout,
                   ", chunks of ", config.chunks.loss_rows, " and ", config.chunks.mlp_rows,
                   std::holds_alternative<SgdSettings>(step.config.optimizer) ? ", sgd" : "");
}

void HomesCase::draw_plans(Random& random) {
  Policy policy;
  set_recompute(policy,
                one_of<const char*>(random, {"none", "norms", "norms,gelu", "attention", "block"}));
  policy.offload = one_of(random, {Offloading::none, Offloading::residual, Offloading::all});
  policy.min_offload_bytes = 1;
  policy.loss_chunk = config.chunks.loss_rows;
  policy.mlp_chunk = config.chunks.mlp_rows;
  resident.step = plan_step(step, policy, machine_here());
  away = resident;
  draw_homes(random, away.step);
  if (toss(random)) {
    resident.layout = lay_out_step(step, resident, machine_here());
    away.layout = lay_out_step(step, away, machine_here());
  }
  words += sentence(", recompute ", recompute_list(policy), ", offload ", name(policy.offload),
                    ", update ", name(away.step.update), away.layout ? ", laid out" : "");
}

void HomesCase::draw_homes(Random& random, Plan& plan) const {
  plan.optimizer_state = OptimizerState::streamed;
  plan.state_bytes_on_device = toss(random) ? random.next() % 4'000'000 : 0;
  const bool clips = config.optimizer.clip > 0;
  place_homes(plan, rehearse_tape(step, {}, machine_here()).program,
              {.bytes_on_device = toss(random) ? random.next() % 8'000'000 : 0,
               .update = clips || toss(random) ? UpdateTime::end : UpdateTime::backward,
               .ahead = static_cast<int>(random.next() % 3),
               .units_leaving = one_of(random, {0.0, 0.25, 1.0, 3.0})});
  for (PlannedUnit& unit : plan.units) {
    for (bool* what : {&unit.parameters_away, &unit.gradients_away, &unit.stays, &unit.in_backward,
                       &unit.all_in_forward}) {
      if (toss(random, 4)) *what = toss(random);
    }
  }
  if (toss(random)) plan.bucket_elements = 2048 * (1 + random.next() % 40);
}

RunBits bits_as_foretold(const TrainingConfig& config, const StepDescription& step,
                         StepPlans plans) {
  const Report foretold = foretell_step(step, plans, machine_here());
  plans.host_bytes = foretold.host.peak;
  CpuStream stream(foretold.memory.peak, 2);
  StepRunner runner(step, plans, stream);
  runner.initialise();
  RunBits bits;
  for (int64_t number = 0; number < 3; ++number) {
    const TokenBatch batch = made_up_batch(config, static_cast<uint64_t>(number));
    runner.run({.number = number, .learning_rate = 1e-3, .targets = batch.valid},
               [&](int64_t micro) {
                 runner.model<TrainedModel>().input().upload(batch, micro * config.batch);
               });
    const StepResult result = runner.result();
    EXPECT_TRUE(result.finite);
    bits.numbers.insert(bits.numbers.end(), {result.loss, result.grad_norm});
  }
  EXPECT_EQ(stream.memory().peak, foretold.memory.peak);
  EXPECT_EQ(runner.host_memory().peak, foretold.host.peak);
  bits.bytes = state_bytes(runner.model().parameters(), runner.optimizer());
  return bits;
}

}  // namespace spool::testing
