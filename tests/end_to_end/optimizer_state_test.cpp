// Where the optimizer's state is changes no number: on the device, streamed through it, or on the
// host, which then updates.

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "spool/kernels/elementwise.h"
#include "spool/models/training/run_checkpoint.h"
#include "spool/models/training/step_layout.h"
#include "spool/planner/machine.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{256} << 20, host_bytes = size_t{64} << 20;
constexpr OptimizerState states[] = {OptimizerState::device, OptimizerState::streamed,
                                     OptimizerState::cpu};
constexpr int64_t steps = 10;

using Bytes = std::vector<std::byte>;

void append(Bytes& to, const std::vector<Tensor>& from) {
  for (const Tensor& t : from) {
    const size_t begin = to.size();
    to.resize(begin + t.nbytes());
    read_bytes(t, 0, std::span(to).subspan(begin));
  }
}

// Of the parameters, then of the state.
Bytes bytes_of(const std::vector<Parameter*>& parameters, const AdamWOptimizer& optimizer) {
  Bytes all;
  for (const Parameter* p : parameters) append(all, {p->data});
  append(all, optimizer.first_moments());
  append(all, optimizer.second_moments());
  append(all, optimizer.masters());
  return all;
}

// ---- An optimizer by itself.

struct Form {
  DType type = DType::f32, gradient = DType::f32;
  Rounding rounding = Rounding::nearest;
};
const Form forms[] = {
    {},
    {.type = DType::bf16, .gradient = DType::bf16},
    {.type = DType::bf16, .gradient = DType::f32},
    {.type = DType::bf16, .gradient = DType::bf16, .rounding = Rounding::stochastic},
    {.type = DType::bf16, .gradient = DType::f32, .rounding = Rounding::stochastic}};

struct Optimized {
  CpuStream stream{plenty, 2};
  HostLink link{stream, host_bytes};
  Form form;
  std::vector<Parameter> parameters;
  std::vector<Parameter*> pointers;
  std::optional<AdamWOptimizer> optimizer;
  Tensor random;

  Optimized(const std::vector<int64_t>& numels, const Form& f, OptimizerState state)
      : form(f), parameters(numels.size()) {
    for (size_t i = 0; i < numels.size(); ++i) {
      parameters[i].data = normal({numels[i], 1}, form.type, stream, i);
      pointers.push_back(&parameters[i]);
    }
    random = make_tensor<int32_t>({4}, std::vector<int32_t>{11, 22, 0, 0}, stream);
    optimizer.emplace(pointers, AdamWSettings{.rounding = form.rounding}, stream,
                      OptimizerMemory{.state = state, .link = &link});
    optimizer->initialise();
  }

  // Of every third parameter, in turn, there is no gradient.
  void make_gradients(int64_t t) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool absent = parameters.size() > 2 && (i + static_cast<size_t>(t)) % 3 == 0;
      if (absent) continue;
      parameters[i].grad = normal(parameters[i].data.shape(), form.gradient, stream,
                                  100 * static_cast<uint64_t>(t) + i);
    }
  }
  void step(int64_t t) { optimizer->step(t, 0.01, random); }
  Bytes bytes() const { return bytes_of(pointers, *optimizer); }
};

void expect_same(const std::vector<int64_t>& numels) {
  for (const Form& form : forms) {
    Bytes wanted;
    for (const OptimizerState state : states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(form.rounding), ", ", name(state)));
      Optimized run(numels, form, state);
      for (int64_t t = 1; t <= steps; ++t) {
        run.make_gradients(t);
        run.step(t);
        for (const Parameter& p : run.parameters) EXPECT_FALSE(p.grad);
      }
      if (state == OptimizerState::device) wanted = run.bytes();
      EXPECT_TRUE(run.bytes() == wanted);
    }
  }
}

TEST(OptimizerState, OfTensorsLargerThanABucketHasTheSameBits) {
  expect_same({1, 5000, 70001, 2048, 0, 4097, 3, 12345});
}

// Whatever order the queues take that nothing but events keeps them in.
TEST(OptimizerState, HasTheSameBitsWhereStreamsAreDelayedAtRandom) {
  const bool given = std::getenv("SPOOL_CPU_DELAY");
  ::setenv("SPOOL_CPU_DELAY", "300", /*overwrite=*/0);
  expect_same({1, 5000, 70001, 2048});
  if (!given) ::unsetenv("SPOOL_CPU_DELAY");
}

TEST(OptimizerState, OfManySmallTensorsHasTheSameBits) {
  expect_same(std::vector<int64_t>(700, 5));  // more in a bucket than one launch takes
}

TEST(OptimizerState, SmallerThanABucketHasTheSameBits) { expect_same({7, 100}); }

TEST(OptimizerState, GradientsThatAreNotFiniteChangeNothing) {
  for (const Form& form : forms) {
    for (const OptimizerState state : states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(form.rounding), ", ", name(state)));
      Optimized run({5000, 70001, 3}, form, state);
      for (int64_t t = 1; t <= 3; ++t) {
        run.make_gradients(t);
        run.step(t);
      }
      const Bytes before = run.bytes();
      run.make_gradients(4);
      launch(Fill{.out = run.parameters[1].grad, .value = INFINITY}, run.stream);
      run.step(4);
      EXPECT_TRUE(run.bytes() == before);
      EXPECT_EQ(read<float>(run.optimizer->clip())[2], 0);
      run.make_gradients(5);
      run.step(5);
      EXPECT_FALSE(run.bytes() == before);
    }
  }
}

TEST(OptimizerState, WithoutGradientsNothingChanges) {
  for (const OptimizerState state : states) {
    Optimized run({5000, 70001, 3}, {}, state);
    const Bytes before = run.bytes();
    run.step(1);
    EXPECT_TRUE(run.bytes() == before);
  }
}

TEST(OptimizerState, NeedsALinkWhereItIsOnTheHost) {
  CpuStream stream(plenty, 1);
  Parameter p{.name = "w", .data = normal({8, 8}, DType::f32, stream, 1)};
  const auto make = [&] { AdamWOptimizer({&p}, {}, stream, {.state = OptimizerState::streamed}); };
  EXPECT_TRUE(contains(error_of(make), "link"));
}

// ---- Buckets.

TEST(Buckets, HaveEveryElementOnceInSlicesThatBeginAtGranules) {
  for (const std::vector<int64_t>& numels :
       {std::vector<int64_t>{1, 5000, 0, 70001, 2048}, {3}, {60'000'000, 7, 2'000'000}}) {
    const Buckets buckets(numels);
    std::vector<int64_t> seen(numels.size());
    int64_t end = 0;
    for (const Buckets::Bucket& bucket : buckets.all()) {
      EXPECT_EQ(bucket.elements.begin, end);
      end = bucket.elements.end;
      EXPECT_LE(bucket.elements.size(), buckets.bucket_elements());
      for (const Buckets::Slice& slice : bucket.slices) {
        EXPECT_EQ(slice.elements.begin, seen[slice.tensor]);
        EXPECT_EQ(slice.elements.begin % AdamW::granule, 0);
        EXPECT_EQ(bucket.elements.begin + slice.at,
                  buckets.begin_of(slice.tensor) + slice.elements.begin);
        EXPECT_LE(slice.at + slice.elements.size(), bucket.elements.size());
        seen[slice.tensor] = slice.elements.end;
      }
    }
    EXPECT_EQ(seen, numels);
    EXPECT_EQ(end, buckets.elements());
    EXPECT_LE(buckets.bucket_elements(), Buckets::max_elements);
  }
}

// ---- Training.

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
  all.back().model = {.layers = 2, .heads = 2, .channels = 64, .context = 24, .vocabulary = 700};
  for (TrainingConfig& config : all) config.steps = steps;
  return all;
}

TrainingPlans plans_with(const TrainingConfig& config, OptimizerState state) {
  TrainingPlans plans = make_plans(config);
  plans.step.optimizer_state = state;
  return plans;
}

Machine machine() { return {.architecture = CpuArchitecture{.threads = 2}}; }

// What a run leaves, the host's peak included.
struct Left {
  Losses losses;
  Bytes bytes;
  size_t host_peak = 0;
};

Left train_all(const TrainingConfig& config, const TrainingPlans& plans, size_t budget) {
  Left left;
  CpuStream stream(budget, 2);
  Trainer trainer(config, plans, stream);
  trainer.initialise();
  for (int64_t step = 0; step < config.steps; ++step) {
    trainer.step(step, rows);
    const StepResult result = trainer.result();
    EXPECT_TRUE(result.finite);
    left.losses.losses.push_back(result.loss);
    left.losses.norms.push_back(result.grad_norm);
  }
  left.bytes = bytes_of(trainer.model().parameters(), trainer.optimizer());
  left.losses.peak = stream.memory().peak;
  left.host_peak = trainer.host_memory().peak;
  return left;
}

TEST(OptimizerState, TrainsWithTheSameBitsAndThePeaksThatWereForetold) {
  for (const TrainingConfig& config : configurations()) {
    Left wanted;
    for (const OptimizerState state : states) {
      SCOPED_TRACE(sentence(name(config.dtype), ", ", name(config.optimizer.rounding), ", ",
                            config.accumulate, " micro-batches, ", name(state)));
      TrainingPlans plans = plans_with(config, state);
      if (config.accumulate > 1) plans.layout = lay_out_step(config, plans, machine());
      const Report foretold = rehearse_training(config, plans, machine());
      plans.host_bytes = foretold.host.peak;
      const Left left = train_all(config, plans, foretold.memory.peak);
      if (state == OptimizerState::device) wanted = left;
      EXPECT_EQ(left.losses.losses, wanted.losses.losses);
      EXPECT_EQ(left.losses.norms, wanted.losses.norms);
      EXPECT_TRUE(left.bytes == wanted.bytes);
      EXPECT_EQ(left.losses.peak, foretold.memory.peak);
      EXPECT_EQ(left.host_peak, foretold.host.peak);
      EXPECT_EQ(foretold.host.peak > 0, state != OptimizerState::device);
    }
  }
}

TEST(OptimizerState, AHostThatHasTooLittleIsASentenceBeforeTheFirstStep) {
  for (const OptimizerState state : {OptimizerState::streamed, OptimizerState::cpu}) {
    TrainingPlans plans = plans_with(small(), state);
    plans.host_bytes = rehearse_training(small(), plans, machine()).host.peak;
    EXPECT_EQ(error_of([&] { rehearse_training(small(), plans, machine()); }), "");
    plans.host_bytes -= Arena::granule;
    const std::string error = error_of([&] { rehearse_training(small(), plans, machine()); });
    EXPECT_TRUE(contains(error, "host: ")) << error;
    EXPECT_TRUE(contains(error, " the arena needs ")) << error;
    plans.host_bytes = size_t{1} << 62;
    CpuStream stream(plenty, 1);
    EXPECT_NE(error_of([&] { Trainer(small(), plans, stream); }), "");
    EXPECT_EQ(stream.memory().live, 0u);
  }
}

// ---- Files.

TEST(OptimizerState, ARunGoesOnWithItsStateElsewhere) {
  for (TrainingConfig config : {small(), without_masters(small()), configurations()[1]}) {
    config.steps = 4;
    config.model.vocabulary = 300;
    const auto all_steps = [&](Trainer& trainer, int64_t begin, int64_t end) {
      for (int64_t step = begin; step < end; ++step) trainer.step(step, rows);
    };
    Bytes wanted;
    for (const OptimizerState from : states) {
      const TemporaryDirectory d;
      {
        TrainingPlans plans = plans_with(config, from);
        plans.host_bytes = host_bytes;
        CpuStream stream(plenty, 2);
        Trainer trainer(config, plans, stream);
        trainer.initialise();
        all_steps(trainer, 0, 2);
        save_checkpoint(d.path(), trainer, *make_byte_tokenizer(), {{"step", 2}});
        all_steps(trainer, 2, 4);
        const Bytes found = bytes_of(trainer.model().parameters(), trainer.optimizer());
        if (from == OptimizerState::device) wanted = found;
        EXPECT_TRUE(found == wanted);
      }
      for (const OptimizerState to : states) {
        SCOPED_TRACE(sentence(name(config.dtype), ", from ", name(from), " to ", name(to)));
        TrainingPlans plans = plans_with(config, to);
        plans.host_bytes = host_bytes;
        CpuStream stream(plenty, 2);
        Trainer trainer(config, plans, stream);
        load_checkpoint(d.path(), trainer);
        all_steps(trainer, 2, 4);
        EXPECT_TRUE(bytes_of(trainer.model().parameters(), trainer.optimizer()) == wanted);
      }
    }
  }
}

TEST(OptimizerState, MastersAreAsExactAsTheFileThatARunBeginsWith) {
  const TemporaryDirectory d;
  TrainingConfig config = small();
  {
    CpuStream stream(plenty, 2);
    Gpt2 model(config.model, DType::f32, stream);
    model.initialise(5);
    save_model(d.path(), model, {});
  }
  config.dtype = DType::bf16;
  Bytes wanted;
  for (const OptimizerState state : states) {
    TrainingPlans plans = plans_with(config, state);
    plans.host_bytes = host_bytes;
    CpuStream stream(plenty, 2);
    Trainer trainer(config, plans, stream);
    trainer.initialise_from(ModelFile(d.path()));
    trainer.step(0, rows);
    const Bytes found = bytes_of(trainer.model().parameters(), trainer.optimizer());
    if (state == OptimizerState::device) wanted = found;
    EXPECT_TRUE(found == wanted) << name(state);
  }
}

// ---- A large model, foretold.

TEST(OptimizerState, Of1558MInBf16FreesEighteenGigabytesOfAnH200) {
  TrainingConfig config{
      .model = {.layers = 48, .heads = 25, .channels = 1600}, .dtype = DType::bf16, .batch = 4};
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

TEST(Machines, HaveNames) {
  for (const char* known : {"h200", "a100-80g", "a100-40g"}) {
    ASSERT_TRUE(named_machine(known)) << known;
    EXPECT_EQ(named_machine(known)->name, known);
  }
  EXPECT_FALSE(named_machine("h2000"));
  EXPECT_FALSE(named_machine(""));
}

}  // namespace
}  // namespace spool::testing
