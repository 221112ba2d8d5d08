// runs: threads
// Training against itself with other threads, chunks and micro-batches.

#include "spool/models/training/trainer.h"
#include "spool/models/families/gpt2.h"

#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

Losses train_on_cpu(const TrainingConfig& config, size_t budget, int threads) {
  CpuStream stream(budget, threads);
  return train(config, stream);
}

TEST(Trainer, HasTheSameBitsForAnyNumberOfThreads) {
  TrainingConfig narrow = small();
  narrow.dtype = DType::bf16;
  for (TrainingConfig config : {small(), narrow, without_masters(small())}) {
    config.dropout = 0.1f;
    // Large enough for loops, products and attention to be cut into several pieces each.
    config.model =
        Gpt2Config{.layers = 1, .heads = 3, .channels = 192, .context = 210, .vocabulary = 1100};
    config.batch = 2;
    config.seq = 200;
    config.steps = 2;
    const Losses one = train_on_cpu(config, 4 * plenty, 1);
    const std::vector<int> few{3}, many{2, 3, 7};
    for (const int threads : finds_races() ? few : many) {
      EXPECT_EQ(train_on_cpu(config, 4 * plenty, threads), one)
          << threads << " threads, " << name(config.dtype);
    }
  }
}

TEST(Trainer, HasTheLossesOfOneBatchInMicroBatches) {
  TrainingConfig whole = small(), cut = small();
  whole.batch = 6;
  cut.batch = 2;
  cut.accumulate = 3;
  const Losses a = train_on_cpu(whole, plenty, 2), b = train_on_cpu(cut, plenty, 2);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 2e-5);
}

TEST(Trainer, HasTheSameLossInChunksAndLessMemory) {
  TrainingConfig whole = small(), chunked = small();
  whole.model = chunked.model = whole.model.with("vocab", 4000);
  chunked.chunks.loss_rows = 8;
  const Losses a = train_on_cpu(whole, plenty, 2), b = train_on_cpu(chunked, plenty, 2);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 2e-5);
  EXPECT_LT(b.peak, a.peak);
}

TEST(Trainer, ChangesNothingIfTheLossIsNotFinite) {
  CpuStream stream(plenty, 2);
  const TrainingConfig config = small();
  Trainer trainer(config, make_plans(config), stream);
  trainer.initialise();
  const Tensor weight = trainer.model().parameters()[2]->data;
  std::vector<float> broken(static_cast<size_t>(weight.numel()), 1);
  broken[0] = INFINITY;
  write<float>(weight, broken);
  const auto before = values(trainer.model().parameters()[4]->data);
  trainer.step(0, batch_of(config, 0));
  EXPECT_FALSE(trainer.result().finite);
  EXPECT_EQ(values(trainer.model().parameters()[4]->data), before);
}

// Micro-batches have different numbers of valid targets, one of them none.
TEST(Trainer, HasTheMeanLossOfTheValidTargetsOfAllMicroBatches) {
  TrainingConfig config = small();
  config.accumulate = 3;
  TokenBatch batch = batch_of(config, 0);
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (i % 7 != 0 && i < batch.targets.size() * 2 / 3) continue;
    batch.targets[i] = ignored_target;
    --batch.valid;
  }
  CpuStream stream(plenty, 2);
  Trainer trainer(config, make_plans(config), stream);
  trainer.initialise();
  double sum = 0;
  const auto rows = static_cast<size_t>(config.batch * config.seq);
  for (size_t micro = 0; micro < 3; ++micro) {
    TokenBatch part{.T = config.seq};
    const auto take = [&](const std::vector<int32_t>& all) {
      const auto some = std::span(all).subspan(micro * rows, rows);
      return std::vector(some.begin(), some.end());
    };
    part.tokens = take(batch.tokens);
    part.targets = take(batch.targets);
    for (const double loss : values(trainer.evaluator().losses(part))) sum += loss;
  }
  trainer.step(0, batch);
  const StepResult result = trainer.result();
  EXPECT_TRUE(result.finite);
  EXPECT_NEAR(result.loss, sum / static_cast<double>(batch.valid), 1e-5);
}

TEST(Trainer, RefusesABatchOfAnotherSize) {
  TrainingConfig config = small(), other = small();
  config.accumulate = 2;
  CpuStream stream(plenty, 1);
  Trainer trainer(config, make_plans(config), stream);
  trainer.initialise();
  const auto refused = [&](const TokenBatch& batch, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::invalid, words, [&] { trainer.step(0, batch); });
  };
  refused({}, {"a step of 6 rows of 20 tokens", "0 rows"});
  refused(batch_of(other, 0), {"3 rows of 20"});
  other.batch = 6;
  other.seq = 10;
  refused(batch_of(other, 0), {"6 rows of 10"});
  trainer.step(0, batch_of(config, 0));
  EXPECT_TRUE(trainer.result().finite);
}

TEST(Trainer, RefusesNumbersThatMakeNoRun) {
  const auto validate = [](const std::function<void(TrainingConfig&)>& change) {
    TrainingConfig config = small();
    change(config);
    config.validate();
  };
  const auto refused = [&](std::initializer_list<std::string_view> words, auto change) {
    expect_error(ErrorKind::invalid, words, [&] { validate(change); });
  };
  refused({"25", "context of 24"}, [](auto& c) { c.seq = 25; });
  refused({"batch", "0"}, [](auto& c) { c.batch = 0; });
  refused({"steps", "-1"}, [](auto& c) { c.steps = -1; });
  refused({"learning rate", "nan"}, [](auto& c) { c.lr = NAN; });
  refused({"learning rate", "inf"}, [](auto& c) { c.lr = INFINITY; });
  refused({"learning rate of 10", "weight decay of 0.1"}, [](auto& c) { c.lr = 10; });
  refused({"weight decay", "inf"}, [](auto& c) { c.optimizer.decay = INFINITY; });
  refused({"dropout", "1"}, [](auto& c) { c.dropout = 1; });
  refused({"too many"}, [](auto& c) { c.batch = int64_t{1} << 30; });
  refused({"rounding", "bf16"}, [](auto& c) { c.optimizer.rounding = Rounding::stochastic; });
  EXPECT_NO_THROW(validate([](auto&) {}));
  EXPECT_NO_THROW(validate([](auto& c) { c = without_masters(c); }));
}

}  // namespace
}  // namespace spool::testing
