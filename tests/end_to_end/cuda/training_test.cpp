// Training on cuda against its rehearsal, against itself without graphs, and against the cpu.

#include "spool/planner/offsets.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

class CudaTraining : public OnCuda {};

// Each kind of micro-step, each type, and each setting that changes the tape.
std::vector<TrainingConfig> configurations() {
  TrainingConfig plain = small(), chunked = small(), dropping = small();
  plain.steps = chunked.steps = dropping.steps = nightly() ? 3 : 2;
  chunked.dtype = DType::bf16;
  chunked.accumulate = 2;
  chunked.chunks.loss_rows = 7;
  dropping.accumulate = 4;
  dropping.dropout = 0.1f;
  dropping.packed = true;
  TrainingConfig narrow = plain;
  narrow.dtype = DType::bf16;
  return {plain, chunked, dropping, without_masters(narrow)};
}

TEST_F(CudaTraining, HasThePeakForetoldWhichSufficesAsBudget) {
  const Machine machine{.architecture = cuda_stream(Arena::granule)->architecture()};
  for (const TrainingConfig& config : configurations()) {
    const StepPlans plans = laid_out_plans(config, machine);
    const size_t foretold = rehearse_training(config, plans, machine, sample).memory.peak;
    EXPECT_EQ(train(config, *cuda_stream(foretold)).peak, foretold);
    expect_error(ErrorKind::memory, {" the arena needs "},
                 [&] { train(config, *cuda_stream(foretold - Arena::granule)); });
  }
}

TEST_F(CudaTraining, HasTheSameBitsAndPeakWithAGraph) {
  for (const TrainingConfig& config : configurations()) {
    const Losses plain = train(config, *cuda_stream(), /*graph=*/false);
    const Losses replayed = train(config, *cuda_stream(), /*graph=*/true);
    EXPECT_EQ(replayed, plain) << name(config.dtype) << ", " << config.accumulate
                               << " micro-batches";
    EXPECT_EQ(replayed.peak, plain.peak);
  }
}

TEST_F(CudaTraining, HasTheSameBitsAndThePeakForetoldWithStateOnTheHost) {
  const Machine machine{.architecture = cuda_stream(Arena::granule)->architecture()};
  for (const TrainingConfig& config : configurations()) {
    const Losses wanted = train(config, *cuda_stream());
    for (const OptimizerState state : {OptimizerState::streamed, OptimizerState::cpu}) {
      SCOPED_TRACE(sentence(name(config.dtype), ", ", name(config.optimizer.rounding), ", ",
                            config.accumulate, " micro-batches, ", name(state)));
      StepPlans plans = make_plans(config);
      plans.step.optimizer_state = state;
      const Report foretold = rehearse_training(config, plans, machine, sample);
      plans.host_bytes = foretold.host.peak;
      for (const bool graph : {true, false}) {
        // A step with work on the host is never captured, so the second run is the first again.
        if (!graph && state == OptimizerState::cpu && !nightly()) continue;
        plans.graph = graph;
        const Losses found = train(config, plans, *cuda_stream(foretold.memory.peak));
        EXPECT_EQ(found.peak, foretold.memory.peak);
        if (state == OptimizerState::streamed) {
          EXPECT_EQ(found, wanted);
          continue;
        }
        const double bound = config.dtype == DType::f32 ? 2e-5 : 2e-2;
        for (size_t i = 0; i < wanted.losses.size(); ++i) {
          EXPECT_NEAR(found.losses[i], wanted.losses[i], bound * wanted.losses[i]) << i;
        }
      }
    }
  }
}

TEST_F(CudaTraining, HasTheLossesOfTheCpu) {
  for (const TrainingConfig& config : configurations()) {
    CpuStream cpu(on_both, 2);
    const Losses wanted = train(config, cpu), found = train(config, *cuda_stream());
    const double bound = config.dtype == DType::f32 ? 2e-5 : 2e-2;
    for (size_t i = 0; i < wanted.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], wanted.losses[i], bound * wanted.losses[i]) << i;
      EXPECT_NEAR(found.norms[i], wanted.norms[i], 3 * bound * wanted.norms[i]) << i;
    }
    EXPECT_NEAR(found.validation, wanted.validation, bound * wanted.validation);
    if (config.dtype == DType::f32) {
      EXPECT_EQ(found.text, wanted.text);
    }
  }
}

// A rehearsal, so it needs no device.  llm.c's peak is 14652 MiB.
TEST(CudaPeak, IsWithinItsBoundsForGpt2AtBatch32) {
  const auto peak = [](int64_t chunk) {
    TrainingConfig config{.dtype = DType::bf16, .batch = 32};
    config.chunks.loss_rows = chunk;
    const Machine machine{.architecture = CudaArchitecture{}};
    return static_cast<double>(rehearse_training(config, make_plans(config), machine).memory.peak);
  };
  EXPECT_LT(peak(0), 15.2e9);
  EXPECT_LT(peak(2048), 12.7e9);  // attention's backward in one part, which takes 0.8e9
}

TEST_F(CudaTraining, ReplaysAGraphInsteadOfLaunching) {
  const auto stream = cuda_stream();
  const TrainingConfig config = small();
  StepPlans plans = make_plans(config);
  const Machine machine{.architecture = stream->architecture()};
  plans.layout = assign_offsets(record_step(describe_step(config), plans, machine));
  Trainer trainer(config, plans, *stream);
  trainer.initialise();
  const auto launches_of = [&](int64_t step) {
    const uint64_t before = stream->launches();
    trainer.step(step, batch_of(config, step));
    EXPECT_TRUE(trainer.result().finite);
    return stream->launches() - before;
  };
  trainer.prepare();
  const uint64_t capturing = launches_of(0);
  EXPECT_LT(launches_of(1), capturing / 10);
  // Other tensors are live than when the graph was captured, so it is captured again.
  const Tensor other({Shape{1000}}, *stream);
  EXPECT_EQ(launches_of(2), capturing);
  EXPECT_LT(launches_of(3), capturing / 10);
}

TEST_F(CudaTraining, ChangesNothingIfTheLossIsNotFinite) {
  const auto stream = cuda_stream();
  const TrainingConfig config = small();
  Trainer trainer(config, make_plans(config), *stream);
  trainer.initialise();
  const Tensor weight = trainer.model().parameters()[2]->data;
  std::vector<float> broken(static_cast<size_t>(weight.numel()), 1);
  broken[0] = INFINITY;
  write<float>(weight, broken);
  for (int64_t step = 0; step < 3; ++step) {  // captured, then replayed
    const auto before = values(trainer.model().parameters()[4]->data);
    trainer.step(step, batch_of(config, step));
    EXPECT_FALSE(trainer.result().finite);
    EXPECT_EQ(values(trainer.model().parameters()[4]->data), before);
  }
}

}  // namespace
}  // namespace spool::testing
