// A run on the device against its rehearsal, and against itself with other threads, chunks and
// micro-batches.

#include "spool/models/training/trainer.h"

#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

Losses train_on_cpu(const TrainingConfig& config, size_t budget, int threads) {
  CpuStream stream(budget, threads);
  return train(config, stream);
}

Machine machine(int threads) { return {.architecture = CpuArchitecture{.threads = threads}}; }

constexpr size_t plenty = size_t{64} << 20;

TEST(Trainer, PeaksAreForetoldToTheByteAndAreABudgetThatSuffices) {
  std::vector<TrainingConfig> all;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t batch : {1, 2, 5}) {
      for (const int64_t accumulate : {1, 3}) {
        for (const int64_t chunk : {0, 7}) {
          TrainingConfig config = small();
          config.dtype = dtype;
          config.batch = batch;
          config.accumulate = accumulate;
          config.loss_chunk = chunk;
          config.dropout = chunk ? 0.1f : 0.0f;
          config.steps = 2;
          all.push_back(config);
        }
      }
    }
  }
  all.push_back(without_masters(small()));
  all.push_back(small());
  all.back().model = {.layers = 3, .heads = 5, .channels = 80, .context = 100, .vocabulary = 300};
  all.back().seq = 77;
  for (const TrainingConfig& config : all) {
    const TrainingPlans plans = laid_out_plans(config, machine(2));
    const size_t foretold = rehearse_training(config, plans, machine(2), sample).memory.peak;
    EXPECT_EQ(train_on_cpu(config, foretold, 2).peak, foretold);
    EXPECT_NE(error_of([&] { train_on_cpu(config, foretold - Arena::granule, 2); }), "");
  }
}

TEST(Trainer, WithoutMastersThePeakIsLowerByTheirBytes) {
  TrainingConfig with = small();
  with.dtype = DType::bf16;
  size_t masters = 0;
  MetaStream stream(machine(2));
  Gpt2 model(with.model, with.dtype, stream);
  for (const Parameter* p : model.parameters()) {
    const auto bytes = static_cast<size_t>(p->data.numel()) * size_of(DType::f32);
    masters += (bytes + Arena::granule - 1) / Arena::granule * Arena::granule;
  }
  const auto peak = [](const TrainingConfig& config) {
    return rehearse_training(config, make_plans(config), machine(2), sample).memory.peak;
  };
  EXPECT_EQ(peak(without_masters(with)), peak(with) - masters);
}

TEST(Trainer, LearnsWithoutMastersAsWithThem) {
  TrainingConfig with = small();
  with.dtype = DType::bf16;
  with.steps = 60;
  with.model.channels = 32;
  const Losses a = train_on_cpu(with, plenty, 2),
               b = train_on_cpu(without_masters(with), plenty, 2);
  EXPECT_EQ(a.losses.front(), b.losses.front());
  EXPECT_LT(b.losses.back(), 1.0);
  EXPECT_NEAR(a.losses.back(), b.losses.back(), 0.25);
}

TEST(Trainer, LossesHaveTheSameBitsForAnyNumberOfThreads) {
  TrainingConfig narrow = small();
  narrow.dtype = DType::bf16;
  for (TrainingConfig config : {small(), narrow, without_masters(small())}) {
    config.dropout = 0.1f;
    // Loops, products and attention take several pieces each.
    config.model = {.layers = 1, .heads = 3, .channels = 192, .context = 210, .vocabulary = 1100};
    config.batch = 2;
    config.seq = 200;
    config.steps = 2;
    Losses one = train_on_cpu(config, 4 * plenty, 1);
    for (const int threads : {2, 3, 7}) {
      Losses other = train_on_cpu(config, 4 * plenty, threads);
      one.peak = other.peak = 0;
      EXPECT_EQ(other, one) << threads << " threads, " << name(config.dtype);
    }
  }
}

TEST(Trainer, MicroBatchesAreOneBatch) {
  TrainingConfig whole = small(), cut = small();
  whole.batch = 6;
  cut.batch = 2;
  cut.accumulate = 3;
  const Losses a = train_on_cpu(whole, plenty, 2), b = train_on_cpu(cut, plenty, 2);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 2e-5);
}

TEST(Trainer, ChunkedLossIsTheSameLossInLessMemory) {
  TrainingConfig whole = small(), chunked = small();
  whole.model.vocabulary = chunked.model.vocabulary = 4000;
  chunked.loss_chunk = 8;
  const Losses a = train_on_cpu(whole, plenty, 2), b = train_on_cpu(chunked, plenty, 2);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 2e-5);
  EXPECT_LT(b.peak, a.peak);
}

TEST(Trainer, LearnsInBothTypes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingConfig config = small();
    config.dtype = dtype;
    config.steps = 60;
    config.model.channels = 32;
    const Losses learned = train_on_cpu(config, plenty, 2);
    EXPECT_NEAR(learned.losses.front(), std::log(50), 0.3);
    EXPECT_LT(learned.losses.back(), 1.0);
  }
}

TEST(Trainer, ALossThatIsNotFiniteChangesNothing) {
  CpuStream stream(plenty, 2);
  const TrainingConfig config = small();
  Trainer trainer(config, make_plans(config), stream);
  trainer.initialise();
  const Tensor weight = trainer.model().parameters()[2]->data;
  std::vector<float> broken(static_cast<size_t>(weight.numel()), 1);
  broken[0] = INFINITY;
  write<float>(weight, broken);
  const auto before = values(trainer.model().parameters()[4]->data);
  trainer.step(0, rows);
  EXPECT_FALSE(trainer.result().finite);
  EXPECT_EQ(values(trainer.model().parameters()[4]->data), before);
}

TEST(Trainer, RefusesNumbersThatMakeNoRun) {
  const auto refused = [](auto change) {
    TrainingConfig config = small();
    change(config);
    return error_of([&] { config.validate(); });
  };
  EXPECT_NE(refused([](auto& c) { c.seq = 25; }).find("context of 24"), std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.batch = 0; }).find("--batch"), std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.steps = -1; }).find("--steps"), std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.lr = NAN; }).find("--lr"), std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.dropout = 1; }).find("--dropout"), std::string::npos);
  EXPECT_NE(refused([](auto& c) { c.batch = int64_t{1} << 30; }).find("too many"),
            std::string::npos);
  EXPECT_NE(
      refused([](auto& c) { c.optimizer.rounding = Rounding::stochastic; }).find("--rounding"),
      std::string::npos);
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_EQ(refused([](auto& c) { c = without_masters(c); }), "");
}

}  // namespace
}  // namespace spool::testing
