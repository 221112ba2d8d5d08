// runs: threads, night
// Runs with the optimizer's state on the device, streamed through it but for any share, or on the
// host: the same bits, the peaks foretold, and checkpoints that any of them resumes.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "spool/models/families/gpt2.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{256} << 20, host_bytes = size_t{64} << 20;

std::vector<TrainingConfig> configurations() {
  TrainingConfig plain = small(), narrow = small(), dropping = small();
  narrow.dtype = DType::bf16;
  dropping.dropout = 0.1f;
  dropping.accumulate = 3;
  std::vector<TrainingConfig> all{plain, narrow, without_masters(plain), dropping,
                                  without_masters(dropping)};
  dropping.dtype = DType::bf16;
  all.push_back(dropping);
  all.push_back(plain);
  all.back().model =
      Gpt2Config{.layers = 2, .heads = 2, .channels = 64, .context = 24, .vocabulary = 700};
  for (TrainingConfig& config : all) config.steps = finds_races() ? 3 : 10;
  return all;
}

StepPlans plans_with(const TrainingConfig& config, const StatePlace& place) {
  StepPlans plans = make_plans(config);
  plans.step.optimizer_state = place.state;
  plans.step.state_bytes_on_device = place.bytes_on_device;
  return plans;
}

std::string in_words(const StatePlace& place) {
  return sentence(name(place.state), " with ", place.bytes_on_device, " bytes on the device");
}

Machine machine() { return {.architecture = this_processor(2)}; }

// Trains with the state in this place, in the foretold peaks of device and host.
Losses run_as_foretold(const TrainingConfig& config, const StatePlace& place) {
  StepPlans plans = plans_with(config, place);
  if (config.accumulate > 1) plans.layout = lay_out_step(describe_step(config), plans, machine());
  const Report foretold = rehearse_training(config, plans, machine(), sample);
  plans.host_bytes = foretold.host.peak;
  CpuStream stream(foretold.memory.peak, 2);
  const Losses found = train(config, plans, stream);
  EXPECT_EQ(found.peak, foretold.memory.peak);
  EXPECT_EQ(found.host_peak, foretold.host.peak);
  return found;
}

TEST(OptimizerStateRun, HasTheSameBitsAndThePeaksForetold) {
  for (const TrainingConfig& config : configurations()) {
    Losses wanted;
    for (const OptimizerState state : optimizer_states) {
      SCOPED_TRACE(sentence(name(config.dtype), ", ", name(config.optimizer.rounding), ", ",
                            config.accumulate, " micro-batches, ", name(state)));
      const Losses found = run_as_foretold(config, state);
      if (state == OptimizerState::device) wanted = found;
      EXPECT_EQ(found, wanted);
      EXPECT_EQ(found.host_peak > 0, state != OptimizerState::device);
    }
  }
}

// Bytes of the device that all of the state takes.
size_t bytes_of_state(const TrainingConfig& config) {
  MetaStream stream(machine());
  const auto model = config.model.make(config.dtype, stream);
  const size_t before = stream.memory().live_by[Purpose::optimizer];
  const AdamWOptimizer optimizer(model->parameters(), config.optimizer, stream);
  const size_t scalars = 3 * Arena::granule;
  return stream.memory().live_by[Purpose::optimizer] - before - scalars;
}

TEST(OptimizerStateRun, HasTheSameBitsWithAnyShareOnTheDevice) {
  Random random(/*seed=*/15);
  for (TrainingConfig config : configurations()) {
    config.steps = 5;
    const size_t all = bytes_of_state(config);
    const Losses on_device = run_as_foretold(config, OptimizerState::device);
    const Losses streamed = run_as_foretold(config, OptimizerState::streamed);
    std::vector<size_t> shares{all, all - 1};
    for (int i = 0; i < 4; ++i) shares.push_back(random.next() % all);
    for (const size_t share : shares) {
      SCOPED_TRACE(sentence(name(config.dtype), ", ", name(config.optimizer.rounding), ", ", share,
                            " of ", all, " bytes"));
      const Losses found = run_as_foretold(config, {OptimizerState::streamed, share});
      EXPECT_EQ(found, on_device);
      EXPECT_LE(found.peak, streamed.peak + share);
      EXPECT_LE(found.host_peak, streamed.host_peak);
      EXPECT_EQ(found.host_peak == 0, share == all);
      EXPECT_TRUE(share < all || found.peak == on_device.peak);
    }
  }
}

TEST(OptimizerStateRun, RefusesTooLittleHostMemoryBeforeTheFirstStep) {
  for (const OptimizerState state : {OptimizerState::streamed, OptimizerState::cpu}) {
    StepPlans plans = plans_with(small(), state);
    plans.host_bytes = rehearse_training(small(), plans, machine()).host.peak;
    EXPECT_NO_THROW(rehearse_training(small(), plans, machine()));
    plans.host_bytes -= Arena::granule;
    expect_error(ErrorKind::memory, {"host: ", " the arena needs "},
                 [&] { rehearse_training(small(), plans, machine()); });
    plans.host_bytes = size_t{1} << 62;
    CpuStream stream(plenty, 1);
    expect_error(ErrorKind::memory, {"host"}, [&] { Trainer(small(), plans, stream); });
    EXPECT_EQ(stream.memory().live, 0u);
  }
}

TEST(OptimizerStateRun, ResumesWithItsStateElsewhere) {
  for (TrainingConfig config : {small(), without_masters(small()), configurations()[1]}) {
    config.steps = 4;
    config.model = config.model.with("vocab", 300);
    const auto all_steps = [&](Trainer& trainer, int64_t begin, int64_t end) {
      for (int64_t step = begin; step < end; ++step) trainer.step(step, batch_of(config, step));
    };
    const size_t all = bytes_of_state(config);
    const StatePlace places[] = {OptimizerState::device,
                                 OptimizerState::streamed,
                                 {OptimizerState::streamed, all / 5},
                                 {OptimizerState::streamed, all / 3 * 2},
                                 OptimizerState::cpu};
    Bytes wanted;
    for (const StatePlace& from : places) {
      const TemporaryDirectory d;
      {
        StepPlans plans = plans_with(config, from);
        plans.host_bytes = host_bytes;
        CpuStream stream(plenty, 2);
        Trainer trainer(config, plans, stream);
        trainer.initialise();
        all_steps(trainer, 0, 2);
        save_checkpoint(
            d.path(),
            {.trainer = trainer, .tokenizer = *make_byte_tokenizer(), .options = {}, .step = 2});
        all_steps(trainer, 2, 4);
        const Bytes found = state_bytes(trainer.model().parameters(), trainer.optimizer());
        if (from.state == OptimizerState::device) wanted = found;
        EXPECT_TRUE(found == wanted);
      }
      for (const StatePlace& to : places) {
        SCOPED_TRACE(sentence(name(config.dtype), ", from ", in_words(from), " to ", in_words(to)));
        StepPlans plans = plans_with(config, to);
        plans.host_bytes = host_bytes;
        CpuStream stream(plenty, 2);
        Trainer trainer(config, plans, stream);
        load_checkpoint(d.path(), /*base=*/"", trainer);
        all_steps(trainer, 2, 4);
        EXPECT_TRUE(state_bytes(trainer.model().parameters(), trainer.optimizer()) == wanted);
      }
    }
  }
}

TEST(OptimizerStateRun, HasMastersAsExactAsTheFileItBeginsWith) {
  const TemporaryDirectory d;
  TrainingConfig config = small();
  {
    CpuStream stream(plenty, 2);
    const auto model = config.model.make(DType::f32, stream);
    model->initialise(5);
    save_model(d.path(), *model);
  }
  config.dtype = DType::bf16;
  Bytes wanted;
  for (const StatePlace& place :
       {StatePlace(OptimizerState::device), StatePlace(OptimizerState::streamed),
        StatePlace(OptimizerState::streamed, bytes_of_state(config) / 2),
        StatePlace(OptimizerState::cpu)}) {
    StepPlans plans = plans_with(config, place);
    plans.host_bytes = host_bytes;
    CpuStream stream(plenty, 2);
    Trainer trainer(config, plans, stream);
    trainer.initialise_from(ModelFile(d.path()));
    trainer.step(0, batch_of(config, 0));
    const Bytes found = state_bytes(trainer.model().parameters(), trainer.optimizer());
    if (place.state == OptimizerState::device) wanted = found;
    EXPECT_TRUE(found == wanted) << name(place.state) << ", " << place.bytes_on_device;
  }
}

TrainingConfig gpt2_1558m() {
  return {.model = Gpt2Config{.layers = 48, .heads = 25, .channels = 1600},
          .dtype = DType::bf16,
          .batch = 4};
}

// The larger the share, the shorter the step: what is on the device is updated during the copies.
TEST(OptimizerStateRun, IsFasterByItsShareOfTheCopies) {
  const TrainingConfig config = gpt2_1558m();
  const Machine h200 = *named_machine("h200");
  const auto foretell = [&](const StatePlace& place) {
    return rehearse_training(config, plans_with(config, place), h200);
  };
  const Report device = foretell(OptimizerState::device);
  const Report streamed = foretell(OptimizerState::streamed);
  const size_t all = bytes_of_state(config);
  const double copies = streamed.seconds - device.seconds;
  double before = streamed.seconds;
  for (int eighths = 1; eighths <= 8; ++eighths) {
    const size_t share = all / 8 * static_cast<size_t>(eighths);
    const Report report = foretell({OptimizerState::streamed, share});
    printf("1558M, bf16, B = 4, %d eighths of the state on the device: peak %.3f GB, %.3f s\n",
           eighths, static_cast<double>(report.memory.peak) / 1e9, report.seconds);
    EXPECT_LT(report.seconds, before);
    EXPECT_LE(report.memory.peak, streamed.memory.peak + share);
    EXPECT_LE(report.seconds, streamed.seconds - copies * eighths / 8 + copies / 1000);
    before = report.seconds;
  }
}

TEST(OptimizerStateRun, Frees18GigabytesOfAnH200For1558M) {
  const TrainingConfig config = gpt2_1558m();
  const auto foretell = [&](OptimizerState state) {
    const Report report =
        rehearse_training(config, plans_with(config, state), *named_machine("h200"));
    printf(
        "1558M, bf16, B = 4, state %s: peak %.3f GB of the device, %.3f GB of the host, %.3f s\n",
        name(state), static_cast<double>(report.memory.peak) / 1e9,
        static_cast<double>(report.host.peak) / 1e9, report.seconds);
    return report;
  };
  const Report device = foretell(OptimizerState::device),
               streamed = foretell(OptimizerState::streamed), cpu = foretell(OptimizerState::cpu);
  constexpr double wanted = 18e9;
  EXPECT_GE(static_cast<double>(device.memory.peak - streamed.memory.peak), wanted);
  EXPECT_GE(static_cast<double>(device.memory.peak - cpu.memory.peak), wanted);
  EXPECT_LT(device.seconds, streamed.seconds);
}

}  // namespace
}  // namespace spool::testing
