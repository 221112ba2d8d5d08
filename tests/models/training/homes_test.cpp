// runs: numbers
// Runs whose parameters and gradients live on the host: the bits of everything resident, in the
// foretold bytes, which are few.

#include "spool/models/families/families.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/planner/home_units.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/homes_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{256} << 20;

void expect_bits_of_resident(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    const HomesCase c(seed);
    SCOPED_TRACE(sentence("case ", seed, ": ", c.words));
    EXPECT_TRUE(bits_as_foretold(c, c.away) == bits_as_foretold(c, c.resident));
  }
}

TEST(TrainingHomes, HaveTheBitsOfEverythingResidentInTheForetoldBytes) {
  expect_bits_of_resident(/*first=*/0, /*count=*/24);
}

TEST(TrainingHomes, SlowHaveTheBitsOfEverythingResidentInTheForetoldBytes) {
  expect_bits_of_resident(/*first=*/24, nightly() ? 500 : 60);
}

std::vector<Policy> policies() {
  const Policy all{.optimizer_state = OptimizerState::streamed, .parameters_on_device = 0};
  Policy some = all, in_backward = all;
  some.parameters_on_device = 20'000;
  set_recompute(some, "block");
  in_backward.update = UpdateTime::backward;
  return {all, some, in_backward, {.update = UpdateTime::backward}};
}

// Evaluations and texts, too.
TEST(TrainingHomes, OfAWholeRunHaveItsLossesInTheForetoldBytes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingConfig config = small();
    config.dtype = dtype;
    config.steps = 3;
    config.accumulate = 2;
    config.optimizer.clip = 0;
    CpuStream fresh(plenty, 2);
    const Losses kept = train(config, fresh);
    for (const Policy& policy : policies()) {
      const PlannedRun run = plan_run(config, {.policy = policy}, machine_here());
      SCOPED_TRACE(
          sentence(name(dtype), ", ", name(policy.update), ", ", homes_of(run.plans.step).size()));
      CpuStream stream(run.foretold.memory.peak, 2);
      const Losses losses = train(run.config, run.plans, stream);
      EXPECT_EQ(losses, kept);
      EXPECT_EQ(losses.peak, run.foretold.memory.peak);
      EXPECT_EQ(losses.host_peak, run.foretold.host.peak);
    }
  }
}

TrainingConfig gpt2_tiny(int64_t seq = 16) {
  TrainingConfig config;
  config.model = model_preset("gpt2-tiny")->config;
  config.batch = 1;
  config.seq = seq;
  return config;
}

size_t bytes_of_parameters(const TrainingConfig& config) {
  MetaStream stream(machine_here());
  const auto model = config.model.make(config.dtype, stream);
  size_t bytes = 0;
  for (const Parameter* p : model->parameters()) bytes += p->spec().nbytes();
  return bytes;
}

StepPlans laid_out(const TrainingConfig& config, const Plan& plan) {
  StepPlans plans{.step = plan};
  plans.layout = lay_out_step(describe_step(config), plans, machine_here());
  return plans;
}

const Policy all_away{.optimizer_state = OptimizerState::streamed, .parameters_on_device = 0};

TEST(TrainingHomes, OfGpt2TinyTakeFewerBytesThanItsParameters) {
  const TrainingConfig config = gpt2_tiny();
  const StepDescription step = describe_step(config);
  EXPECT_EQ(bytes_of_parameters(config), 7'414'272u);
  const RunBits wanted = bits_as_foretold(config, step, {});
  const StepPlans by_policy = laid_out(config, plan_step(step, all_away, machine_here()));
  EXPECT_TRUE(bits_as_foretold(config, step, by_policy) == wanted);
  EXPECT_LE(foretell_step(step, by_policy, machine_here()).memory.peak, 6'500'000u);

  // Nothing ahead, blocks recomputed, and little on its way.
  Policy policy = all_away;
  set_recompute(policy, "block");
  Plan written = plan_step(step, policy, machine_here());
  for (PlannedUnit& unit : written.units) {
    unit.forward_fetch = unit.first;
    unit.backward_fetch = unit.last;
  }
  written.units_leaving = 0.125;
  written.bucket_elements = fitting_buckets(step, written, machine_here());
  const StepPlans by_hand = laid_out(config, written);
  EXPECT_TRUE(bits_as_foretold(config, step, by_hand) == wanted);
  const size_t peak = foretell_step(step, by_hand, machine_here()).memory.peak;
  EXPECT_LE(peak, 4'800'000u);
  EXPECT_LT(peak, bytes_of_parameters(config) * 65 / 100);
}

size_t largest_parameter(const TrainingConfig& config) {
  MetaStream stream(machine_here());
  const auto model = config.model.make(config.dtype, stream);
  size_t bytes = 0;
  for (const Parameter* p : model->parameters()) bytes = std::max(bytes, p->spec().nbytes());
  return bytes;
}

// All steps of a run from one to another.
void train_steps(Trainer& trainer, const TrainingConfig& config, int64_t begin, int64_t end) {
  for (int64_t step = begin; step < end; ++step) trainer.step(step, batch_of(config, step));
}

TEST(TrainingHomes, AreMadeLoadedAndSavedInTheBytesOfTheLargestParameter) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name(dtype));
    TrainingConfig config = gpt2_tiny();
    config.dtype = dtype;
    const size_t most = largest_parameter(config) + (size_t{1} << 20);
    ASSERT_LT(2 * most, bytes_of_parameters(config));
    const StepPlans plans{.step = plan_step(describe_step(config), all_away, machine_here()),
                          .host_bytes = plenty};
    const TemporaryDirectory d;
    const std::filesystem::path saved = d.path() / "saved", model = d.path() / "model";
    std::filesystem::create_directories(saved);
    std::filesystem::create_directories(model);
    Bytes wanted;
    {
      CpuStream resident(plenty, 2);
      Trainer trainer(config, {}, resident);
      trainer.initialise();
      wanted = state_bytes(trainer.model().parameters(), trainer.optimizer());
    }
    {
      CpuStream stream(most, 2);
      Trainer trainer(config, plans, stream);
      trainer.initialise();
      EXPECT_TRUE(state_bytes(trainer.model().parameters(), trainer.optimizer()) == wanted);
      save_model(model, trainer.model());
      save_checkpoint(
          saved,
          {.trainer = trainer, .tokenizer = *make_byte_tokenizer(), .options = {}, .step = 0});
      EXPECT_LE(stream.memory().peak, most);
    }
    const auto expect_loaded = [&](const std::function<void(Trainer&)>& load) {
      CpuStream stream(most, 2);
      Trainer trainer(config, plans, stream);
      load(trainer);
      EXPECT_TRUE(state_bytes(trainer.model().parameters(), trainer.optimizer()) == wanted);
      EXPECT_LE(stream.memory().peak, most);
    };
    expect_loaded([&](Trainer& t) { t.initialise_from(ModelFile(model)); });
    expect_loaded([&](Trainer& t) { load_checkpoint(saved, /*base=*/"", t); });
  }
}

TEST(TrainingHomes, ResumeElsewhere) {
  for (TrainingConfig config : {small(), without_masters(small())}) {
    config.steps = 4;
    config.optimizer.clip = 0;
    config.model = config.model.with("vocab", 300);
    std::vector<StepPlans> places{{}};
    for (const Policy& policy : policies()) {
      places.push_back(
          {.step = plan_step(describe_step(config), policy, machine_here()), .host_bytes = plenty});
    }
    Bytes wanted;
    for (const StepPlans& from : places) {
      const TemporaryDirectory d;
      {
        CpuStream stream(plenty, 2);
        Trainer trainer(config, from, stream);
        trainer.initialise();
        train_steps(trainer, config, 0, 2);
        save_checkpoint(
            d.path(),
            {.trainer = trainer, .tokenizer = *make_byte_tokenizer(), .options = {}, .step = 2});
        train_steps(trainer, config, 2, 4);
        const Bytes found = state_bytes(trainer.model().parameters(), trainer.optimizer());
        if (wanted.empty()) wanted = found;
        EXPECT_TRUE(found == wanted);
      }
      for (const StepPlans& to : places) {
        CpuStream stream(plenty, 2);
        Trainer trainer(config, to, stream);
        load_checkpoint(d.path(), /*base=*/"", trainer);
        train_steps(trainer, config, 2, 4);
        EXPECT_TRUE(state_bytes(trainer.model().parameters(), trainer.optimizer()) == wanted);
      }
    }
  }
}

// A gradient that is not finite: at the end nothing changes; in backward only its parameter, and
// those that it spoils, do not.
TEST(TrainingHomes, AStepThatIsNotFiniteSaysSo) {
  for (const Policy& policy : policies()) {
    TrainingConfig config = small();
    config.optimizer.clip = 0;
    const StepPlans plans{.step = plan_step(describe_step(config), policy, machine_here()),
                          .host_bytes = plenty};
    CpuStream stream(plenty, 2);
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    Parameters& parameters = trainer.model().parameters();
    parameters.with(0, [&] {
      const float infinite = INFINITY;
      write_bytes(parameters[0]->data, 0, std::as_bytes(std::span(&infinite, 1)));
    });
    const Bytes before = state_bytes(parameters, trainer.optimizer());
    trainer.step(0, batch_of(config, 0));
    EXPECT_FALSE(trainer.result().finite);
    if (policy.update == UpdateTime::backward) continue;
    EXPECT_TRUE(state_bytes(parameters, trainer.optimizer()) == before);
  }
}

// Both numbers are said before anything is made.
TEST(TrainingHomes, NeedTheHostMemoryThatIsForetold) {
  const TrainingConfig config = small();
  StepPlans plans{.step = plan_step(describe_step(config), all_away, machine_here())};
  plans.host_bytes = foretell_step(describe_step(config), plans, machine_here()).host.peak;
  EXPECT_NO_THROW((void)foretell_step(describe_step(config), plans, machine_here()));
  plans.host_bytes -= HostLink::alignment;
  expect_error(ErrorKind::memory, {"host: ", " the arena needs "},
               [&] { (void)foretell_step(describe_step(config), plans, machine_here()); });
  plans.host_bytes = 3 * HostLink::alignment;  // less than the parameters
  CpuStream stream(plenty, 1);
  expect_error(ErrorKind::memory, {"host"}, [&] { Trainer(config, plans, stream); });
  EXPECT_EQ(stream.memory().live, 0u);
}

TEST(TrainingHomes, AreRefusedOnRanksAndUpdatesInBackwardWithClipping) {
  TrainingConfig config = small();
  config.ranks = 2;
  config.accumulate = 2;
  Plan plan = plan_step(describe_step(small()), all_away, machine_here());
  const auto refused = [&](std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::invalid, words,
                 [&] { check_homes(describe_step(config).config, plan); });
  };
  refused({"keep what is trained on the device and update it at the end, or train on one rank"});
  config.zero = 3;
  refused({"parameters that ranks store in parts", "not fetched from the host"});
  config = small();
  EXPECT_NO_THROW(check_homes(describe_step(config).config, plan));
  plan.update = UpdateTime::backward;
  config.optimizer.clip = 2;
  refused({"a clip of 2 cuts them; set the clip to 0, or update them at the end"});
}

}  // namespace
}  // namespace spool::testing
