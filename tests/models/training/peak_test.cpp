// The peak memory of training against its rehearsal.

#include "spool/models/training/trainer.h"

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/integer.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_threads{.architecture = CpuArchitecture{.threads = 2}};

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
    const TrainingPlans plans = laid_out_plans(config, two_threads);
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

TEST(TrainingPeak, IsLowerWithoutMastersByTheirBytes) {
  TrainingConfig with = small();
  with.dtype = DType::bf16;
  size_t masters = 0;
  MetaStream stream(two_threads);
  Gpt2 model(with.model, with.dtype, stream);
  for (const Parameter* p : model.parameters()) {
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
