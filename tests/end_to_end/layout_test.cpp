// runs: numbers
// Layouts of training steps: little is wasted, runs have the same bits, and deviations are refused.

#include "spool/models/families/gpt2.h"
#include "spool/models/steps/step_executor.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/offsets.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"
#include "tests/planner/layout_testing.h"

namespace spool::testing {
namespace {

Machine cpu(int threads) { return {.architecture = this_processor(threads)}; }

// Recomputes this share of the values that can be, drawn at random.
Plan random_recompute(const TrainingConfig& config, uint64_t tenths) {
  MetaStream stream(cpu(2));
  const auto model = config.model.make(config.dtype, stream);
  const Spec ids{Shape{config.batch, config.seq}, DType::i32};
  Tape tape(stream, {.backward_follows = true});
  const Var tokens = tape.input(Tensor(ids, stream)), targets = tape.input(Tensor(ids, stream));
  model->loss(tokens, targets);
  Random random(tenths, 3);
  Plan plan;
  for (const Value& v : tape.values()) {
    const Node* producer = v.producer < 0 ? nullptr : &tape.nodes()[v.producer];
    const bool recomputable = producer && producer->op->recomputable();
    plan.placement.push_back(recomputable && random.next() % 10 < tenths ? Placement::recompute
                                                                         : Placement::keep);
  }
  return plan;
}

// Random mixtures are the hardest: real plans treat layers alike.
TEST(StepLayout, SlowWastesAtMostOnePercent) {
  for (const char* model : {"gpt2-124m", "tiny"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t accumulate : {1, 2, 3}) {
        for (const uint64_t tenths : {0, 3, 6, 9}) {
          TrainingConfig config = small();
          if (const auto preset = gpt2_preset(model)) config.model = *preset, config.seq = 1024;
          config.dtype = dtype;
          config.accumulate = accumulate;
          StepPlans plans = make_plans(config);
          if (tenths > 0) plans.step = random_recompute(config, tenths);
          const Layout layout = assign_offsets(record_step(describe_step(config), plans, cpu(2)));
          EXPECT_LE(waste(layout), 0.01)
              << model << ", " << name(dtype) << ", " << accumulate << ", " << tenths;
          if (layout.offsets.size() < 1000) expect_apart(layout);
        }
      }
    }
  }
}

TEST(StepLayout, SlowTakesLessThanBestFit) {
  TrainingConfig config{.model = *gpt2_preset("gpt2-124m"), .accumulate = 4};
  const StepPlans plans = make_plans(config), better = laid_out_plans(config, cpu(2));
  ASSERT_TRUE(better.layout);
  const auto peak = [&](const StepPlans& p) {
    return rehearse_training(config, p, cpu(2)).memory.peak;
  };
  EXPECT_LT(peak(better) + (size_t{30} << 20), peak(plans));
}

TEST(StepLayout, KeepsARunsBitsAndHasTheForetoldPeak) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t accumulate : {1, 2, 3, 5}) {
      TrainingConfig config = small();
      config.dtype = dtype;
      config.accumulate = accumulate;
      config.dropout = 0.1f;
      config.model =
          config.model.with("vocab", 700);  // so that a step takes more than what comes after it
      StepPlans plans = make_plans(config);
      CpuStream plain(size_t{64} << 20, 2);
      Losses wanted = train(config, plans, plain);
      plans.layout = assign_offsets(record_step(describe_step(config), plans, cpu(2)));
      EXPECT_LE(waste(*plans.layout), 0.01);
      const Report foretold = rehearse_training(config, plans, cpu(2), sample);
      CpuStream stream(foretold.memory.peak, 2);
      const Losses found = train(config, plans, stream);
      EXPECT_EQ(found.peak, foretold.memory.peak);
      EXPECT_EQ(stream.memory().at_peak_by, foretold.memory.at_peak_by);
      wanted.peak = found.peak;
      EXPECT_EQ(found, wanted) << name(dtype) << ", " << accumulate;
    }
  }
}

TEST(StepLayout, AFailedStepLeavesTheNextOneItsMemory) {
  TrainingConfig config = small();
  config.accumulate = 3;
  StepPlans plans = make_plans(config);
  plans.layout = assign_offsets(record_step(describe_step(config), plans, cpu(2)));
  CpuStream stream(rehearse_training(config, plans, cpu(2)).memory.peak, 2);
  TrainedModel model(config, evaluation_plan(config), stream);
  StepExecutor runner(model, config.step(), plans, stream);
  model.model().initialise(config.seed);
  runner.optimizer().initialise();
  const TokenBatch batch = batch_of(config, 0);
  const auto upload = [&](int64_t micro) { model.input().upload(batch, micro * config.batch); };
  const auto failing = [&](int64_t micro) {
    check(micro < 1, "no more rows");
    upload(micro);
  };
  expect_error(ErrorKind::invalid, {"no more rows"}, [&] { runner.run({}, failing); });
  for (const int64_t step : {0, 1}) runner.run({.number = step, .targets = batch.valid}, upload);
  EXPECT_TRUE(runner.result().finite);
}

TEST(StepLayout, IsRefusedByAnotherStep) {
  TrainingConfig config = small(), other = small();
  other.model = other.model.with("channels", 32);
  StepPlans plans = make_plans(config);
  plans.layout = assign_offsets(record_step(describe_step(other), make_plans(other), cpu(2)));
  CpuStream stream(size_t{64} << 20, 2);
  {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    expect_error(ErrorKind::invalid, {"allocation 0 of phase 0", "embedding"},
                 [&] { trainer.step(0, batch_of(config, 0)); });
  }
  EXPECT_EQ(stream.memory().live, 0u);
}

}  // namespace
}  // namespace spool::testing
