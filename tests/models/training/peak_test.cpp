// The peak memory of training against its rehearsal.

#include "spool/models/families/gpt2.h"
#include "spool/models/training/trainer.h"

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/integer.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_threads{.architecture = this_processor(2)};

TEST(TrainingPeak, IsForetoldToTheByteAndSufficesAsBudget) {
  std::vector<TrainingConfig> all;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t batch : {1, 2, 5}) {
      for (const int64_t accumulate : {1, 3}) {
        for (const int64_t chunk : {0, 7}) {
          TrainingConfig config = small();
          config.dtype = dtype;
          config.batch = batch;
          config.accumulate = accumulate;
          config.chunks.loss_rows = chunk;
          config.dropout = chunk ? 0.1f : 0.0f;
          config.steps = 2;
          all.push_back(config);
        }
      }
    }
  }
  all.push_back(without_masters(small()));
  all.push_back(small());
  all.back().model =
      Gpt2Config{.layers = 3, .heads = 5, .channels = 80, .context = 100, .vocabulary = 300};
  all.back().seq = 77;
  for (const TrainingConfig& config : all) {
    const StepPlans plans = laid_out_plans(config, two_threads);
    const size_t foretold = rehearse_training(config, plans, two_threads, sample).memory.peak;
    const auto peak_within = [&](size_t budget) {
      CpuStream stream(budget, 2);
      return train(config, stream).peak;
    };
    EXPECT_EQ(peak_within(foretold), foretold);
    expect_error(ErrorKind::memory, {" the arena needs "},
                 [&] { peak_within(foretold - Arena::granule); });
  }
}

TEST(TrainingPeak, IsForetoldForAnyNumberOfThreadsAndRisesWithIt) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingConfig config = small();
    config.model =
        Gpt2Config{.layers = 2, .heads = 5, .channels = 205, .context = 33, .vocabulary = 301};
    config.seq = 31;
    config.dtype = dtype;
    config.steps = 1;
    size_t before = 0;
    for (int threads = 1; threads <= 7; ++threads) {
      const Machine machine{.architecture = this_processor(threads)};
      const StepPlans plans = laid_out_plans(config, machine);
      const size_t foretold = rehearse_training(config, plans, machine, sample).memory.peak;
      CpuStream stream(foretold, threads);
      EXPECT_EQ(train(config, stream).peak, foretold) << threads << " threads";
      EXPECT_GE(foretold, before) << threads << " threads";
      before = foretold;
    }
  }
}

TEST(TrainingPeak, IsLowerWithoutMastersByTheirBytes) {
  TrainingConfig with = small();
  with.dtype = DType::bf16;
  size_t masters = 0;
  MetaStream stream(two_threads);
  const auto model = with.model.make(with.dtype, stream);
  for (const Parameter* p : model->parameters()) {
    const auto bytes = static_cast<size_t>(p->data.numel()) * size_of(DType::f32);
    masters += round_up(bytes, Arena::granule);
  }
  const auto peak = [](const TrainingConfig& config) {
    return rehearse_training(config, make_plans(config), two_threads, sample).memory.peak;
  };
  EXPECT_EQ(peak(without_masters(with)), peak(with) - masters);
}

}  // namespace
}  // namespace spool::testing
