// runs: threads
// Steps on a GPU whose parameters and gradients live on the host, captured as graphs and not: the
// losses of everything resident, in the foretold peaks.

#include "tests/kernels/cuda_testing.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

class CudaHomes : public OnCuda {};

TrainingConfig config_of(DType dtype) {
  TrainingConfig config = small();
  config.steps = 3;
  config.batch = 2;
  config.seq = 8;
  config.accumulate = 3;
  config.dtype = dtype;
  config.optimizer.clip = 0;
  return config;
}

Policy everything_away(UpdateTime update) {
  return {.offload = Offloading::residual,
          .min_offload_bytes = 1,
          .optimizer_state = OptimizerState::streamed,
          .parameters_on_device = 0,
          .update = update};
}

TEST_F(CudaHomes, HaveTheLossesOfEverythingResidentCapturedOrNot) {
  const Machine machine{.architecture = cuda_stream(Arena::granule)->architecture()};
  for (const DType dtype : cuda_types) {
    const TrainingConfig config = config_of(dtype);
    const Losses wanted = train(config, *cuda_stream(), /*graph=*/false);
    for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
      SCOPED_TRACE(sentence(name(dtype), ", update ", name(update)));
      StepPlans plans{.step = plan_step(describe_step(config), everything_away(update), machine)};
      plans.layout = lay_out_step(describe_step(config), plans, machine);
      const Report foretold = rehearse_training(config, plans, machine, sample);
      plans.host_bytes = foretold.host.peak;
      for (const bool graph : {true, false}) {
        plans.graph = graph;
        const Losses found = train(config, plans, *cuda_stream(foretold.memory.peak));
        EXPECT_EQ(found, wanted);
        EXPECT_EQ(found.peak, foretold.memory.peak);
        EXPECT_EQ(found.host_peak, foretold.host.peak);
      }
    }
  }
}

// Copies in and out are part of the graph.
TEST_F(CudaHomes, AreReplayedInsteadOfLaunched) {
  const auto stream = cuda_stream();
  const TrainingConfig config = config_of(DType::f32);
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    const Machine machine{.architecture = stream->architecture()};
    StepPlans plans{.step = plan_step(describe_step(config), everything_away(update), machine)};
    plans.host_bytes = foretell_step(describe_step(config), plans, machine).host.peak;
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
    EXPECT_LT(launches_of(1), capturing / 10) << name(update);
    EXPECT_LT(launches_of(2), capturing / 10) << name(update);
  }
}

}  // namespace
}  // namespace spool::testing
