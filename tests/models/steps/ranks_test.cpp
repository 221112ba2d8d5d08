// runs: threads
// Any number of ranks trains the same model with the same bits, and each rank reaches the peak that
// was foretold.

#include <mutex>

#include "spool/models/steps/step_executor.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{.layers = 2, .dropout = 0.1F};
constexpr size_t steps = 3;

// What a run leaves: parameters and state in whole, and the losses and norms of its steps.
struct Trained {
  std::vector<float> numbers = {};
  std::vector<Bytes> parameters = {}, state = {};
  std::vector<size_t> peaks = {}, host_peaks = {}, sent = {};
  bool operator==(const Trained& o) const {
    return numbers == o.numbers && parameters == o.parameters && state == o.state;
  }
};

Bytes bytes_of(const Tensor& t) {
  Bytes bytes(t.nbytes());
  read_bytes(t, 0, bytes);
  return bytes;
}

// Adds the state that this rank has to what the others have.
void collect_state(Optimizer& optimizer, std::vector<Bytes>& state) {
  const auto& rows = optimizer.state_rows();
  const auto& parameters = optimizer.parameters();
  state.resize(rows.size() * parameters.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const int64_t n = parameters[p]->data.numel();
      Bytes& bytes = state[row * parameters.size() + p];
      bytes.resize(static_cast<size_t>(n) * size_of(rows[row].type));
      optimizer.read_state({row, p, {0, n}}, bytes);
    }
  }
}

// A rank's part of some steps.
void train(const TransformerSizes& of, const StepConfig& config, const StepPlans& plans,
           const std::shared_ptr<Communicator>& ranks, std::mutex& mutex, Trained& all) {
  CpuStream stream(size_t{64} << 20, 1);
  if (config.ranks > 0) stream.join(ranks);
  Transformer model(of, stream);
  StepExecutor executor(model, config, plans, stream);
  model.initialise();
  executor.optimizer().initialise();
  std::vector<float> numbers;
  for (int64_t number = 0; number < int64_t{steps}; ++number) {
    const int64_t targets = config.accumulate * of.batch * of.tokens;
    executor.run({.number = number, .learning_rate = 0.01, .targets = targets},
                 [&](int64_t micro) { model.upload(config.accumulate * number + micro); });
    const StepResult result = executor.result();
    numbers.insert(numbers.end(), {result.loss, result.grad_norm});
  }
  const std::lock_guard lock(mutex);
  collect_state(executor.optimizer(), all.state);
  const auto rank = static_cast<size_t>(ranks->rank());
  if (rank == 0) {
    all.numbers = numbers;
    for (const Parameter* p : model.parameters()) all.parameters.push_back(bytes_of(p->data));
  }
  EXPECT_EQ(numbers.size(), 2 * steps);
  all.peaks[rank] = stream.memory().peak;
  all.host_peaks[rank] = executor.host_memory().peak;
  all.sent[rank] = ranks->sent();
}

// Plans with the state in this place, and with the host memory that they take.
StepPlans with_state_in(OptimizerState place, const StepConfig& config,
                        const TransformerSizes& of = sizes) {
  const StepDescription step = describe(of, config);
  StepPlans plans{.step = plan_step(step, {.optimizer_state = place}, cpu_machine())};
  plans.host_bytes = rehearse_step(step, plans, cpu_machine()).report.host.peak;
  return plans;
}

// Without ranks if there are 0 of them.
Trained train_on(int ranks, StepConfig config, const StepPlans& plans = {},
                 const TransformerSizes& of = sizes) {
  config.ranks = ranks;
  const auto count = static_cast<size_t>(std::max(ranks, 1));
  Trained all{.peaks = std::vector<size_t>(count),
              .host_peaks = std::vector<size_t>(count),
              .sent = std::vector<size_t>(count)};
  std::mutex mutex;
  run_ranks(std::max(ranks, 1), [&](const std::shared_ptr<Communicator>& own) {
    train(of, config, plans, own, mutex, all);
  });
  return all;
}

TEST(Ranks, TrainTheSameModelOnAnyNumberOfThem) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TransformerSizes of = sizes;
    of.dtype = dtype;
    const StepConfig config{.dtype = dtype, .accumulate = 12};
    const Trained alone = train_on(1, config, {}, of);
    for (const int ranks : {2, 3, 4, 6, 12}) {
      EXPECT_TRUE(train_on(ranks, config, {}, of) == alone) << ranks << name(dtype);
    }
  }
}

TEST(Ranks, HaveTheSameBitsInEveryStageIfEachComputesOneMicroBatch) {
  StepConfig config{.accumulate = 4, .zero = 0};
  const Trained stage_0 = train_on(4, config);
  for (const int stage : {1, 2}) {
    config.zero = stage;
    EXPECT_TRUE(train_on(4, config) == stage_0) << stage;
  }
  config.accumulate = 1;
  const Trained without = train_on(0, config);
  for (const int stage : {0, 1, 2}) {
    config.zero = stage;
    EXPECT_TRUE(train_on(1, config) == without) << stage;
  }
}

TEST(Ranks, OneInStages0And1IsARunWithoutRanks) {
  StepConfig config{.accumulate = 3};
  const Trained without = train_on(0, config);
  for (const int stage : {0, 1}) {
    config.zero = stage;
    EXPECT_TRUE(train_on(1, config) == without) << stage;
  }
}

// What a rank gives to others in the exchanges of a rehearsed step.
size_t foretold_sent(const StepDescription& step, const StepPlans& plans, const Machine& machine) {
  size_t bytes = 0;
  for (const TraceSpan& span : rehearse_step(step, plans, machine, {.trace = true}).trace) {
    if (span.lane == TraceLane::exchange) bytes += span.bytes;
  }
  return bytes;
}

TEST(Ranks, ReachTheForetoldPeaksAndSendTheForetoldBytesWhereverTheStateIs) {
  for (const int stage : {0, 1, 2}) {
    for (const auto place :
         {OptimizerState::device, OptimizerState::streamed, OptimizerState::cpu}) {
      const StepConfig config{.dtype = DType::bf16, .accumulate = 6, .ranks = 3, .zero = stage};
      TransformerSizes of = sizes;
      of.dtype = DType::bf16;
      const StepPlans plans = with_state_in(place, config, of);
      const Trained trained = train_on(config.ranks, config, plans, of);
      for (int rank = 0; rank < config.ranks; ++rank) {
        Machine machine = cpu_machine();
        machine.architecture = this_processor(/*threads=*/1);
        machine.mesh.rank = rank;
        const Report report = rehearse_step(describe(of, config), plans, machine).report;
        const auto r = static_cast<size_t>(rank);
        EXPECT_EQ(trained.peaks[r], report.memory.peak) << stage << name(place) << rank;
        EXPECT_EQ(trained.host_peaks[r], report.host.peak) << stage << name(place) << rank;
        const size_t sent = foretold_sent(describe(of, config), plans, machine);
        EXPECT_GT(sent, 0U);
        EXPECT_EQ(trained.sent[r], steps * sent) << stage << name(place) << rank;
        EXPECT_EQ(trained.peaks[r], trained.peaks[0]);
        EXPECT_EQ(trained.host_peaks[r], trained.host_peaks[0]);
      }
    }
  }
}

TEST(Ranks, TrainTheSameModelWithAnyNumberOfBucketsInFlight) {
  for (const int stage : {1, 2}) {
    const StepConfig config{.accumulate = 3, .ranks = 3, .zero = stage};
    const Trained two = train_on(3, config);
    for (const int buckets : {2, 3, 4, 8}) {
      const StepPlans plans{.step = {.buckets_in_flight = buckets}};
      const Trained trained = train_on(3, config, plans);
      EXPECT_TRUE(trained == two) << buckets;
      Machine machine = cpu_machine();
      machine.architecture = this_processor(/*threads=*/1);
      const Report report = rehearse_step(describe(sizes, config), plans, machine).report;
      EXPECT_EQ(trained.peaks, std::vector<size_t>(3, report.memory.peak)) << buckets;
    }
  }
}

TEST(Ranks, TrainTheSameModelWhereverTheStateIs) {
  StepConfig config{.accumulate = 4};
  const Trained alone = train_on(1, config);
  for (const auto place : {OptimizerState::streamed, OptimizerState::cpu}) {
    config.ranks = 1;  // which takes most
    StepPlans plans = with_state_in(place, config);
    EXPECT_TRUE(train_on(4, config, plans) == alone) << name(place);
    if (place != OptimizerState::streamed) continue;
    plans.step.state_bytes_on_device = size_t{100} << 10;
    EXPECT_TRUE(train_on(2, config, plans) == alone);
  }
}

TEST(Ranks, HaveTheSameBitsWhereNothingButPaddingOfARowIsOnTheHost) {
  const StepConfig config{.accumulate = 3};
  const Trained alone = train_on(1, config);
  StepConfig of_rank = config;
  of_rank.ranks = 3;
  size_t on_device = 0, padded = 0;
  do {
    StepPlans plans = with_state_in(OptimizerState::streamed, of_rank);
    plans.step.state_bytes_on_device = on_device += size_t{16} << 10;  // of a granule
    plans.host_bytes =
        rehearse_step(describe(sizes, of_rank), plans, cpu_machine()).report.host.peak;
    EXPECT_TRUE(train_on(3, config, plans) == alone) << on_device;
    padded = plans.host_bytes;
  } while (padded > 0);
}

TEST(Ranks, WhoseStepsDifferAreRefusedBeforeTheFirst) {
  const auto expect_refused = [](const std::string& what, const auto& change) {
    const auto make = [&](const std::shared_ptr<Communicator>& own) {
      TransformerSizes of = sizes;
      StepConfig config{.accumulate = 4, .ranks = 2};
      StepPlans plans;
      if (own->rank() == 1) change(of, config, plans);
      CpuStream stream(size_t{64} << 20, 1);
      stream.join(own);
      Transformer model(of, stream);
      const StepExecutor executor(model, config, plans, stream);
    };
    const std::string said = "rank 0 and rank 1 differ in " + what;
    expect_error(ErrorKind::invalid, {said.c_str(), "; all ranks of a run need the same"},
                 [&] { run_ranks(2, make); });
  };
  expect_refused("trained parameters: ", [](auto& of, auto&, auto&) { of.layers = 1; });
  expect_refused("type of parameters: f32 and bf16",
                 [](auto&, auto& config, auto&) { config.dtype = DType::bf16; });
  expect_refused("micro-batches of a step: 4 and 8",
                 [](auto&, auto& config, auto&) { config.accumulate = 8; });
  expect_refused("stage of ZeRO: 2 and 0", [](auto&, auto& config, auto&) { config.zero = 0; });
  expect_refused(
      "place of the optimizer's state: device and streamed",
      [](auto&, auto&, auto& plans) { plans.step.optimizer_state = OptimizerState::streamed; });
  expect_refused("buckets in flight: ",
                 [](auto&, auto&, auto& plans) { plans.step.buckets_in_flight = 3; });
}

TEST(Ranks, OneThatFailsEndsTheOthers) {
  const auto fails = [&](const std::shared_ptr<Communicator>& own) {
    CpuStream stream(size_t{64} << 20, 1);
    stream.join(own);
    Transformer model(sizes, stream);
    StepExecutor executor(model, {.accumulate = 4, .ranks = 4}, {}, stream);
    model.initialise();
    executor.optimizer().initialise();
    executor.run({.targets = 4}, [&](int64_t micro) {
      check(micro != 2, "the data of micro-batch 2 are missing");
      model.upload(micro);
    });
    executor.result();
  };
  expect_error(ErrorKind::invalid, {"rank 2: the data of micro-batch 2 are missing"},
               [&] { run_ranks(4, fails); });
}

}  // namespace
}  // namespace spool::testing
