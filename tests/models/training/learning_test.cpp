// Training learns: losses fall on rows whose next token is predictable.

#include "spool/models/training/trainer.h"

#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

Losses train_with_two_threads(const TrainingConfig& config) {
  CpuStream stream(size_t{64} << 20, 2);
  return train(config, stream);
}

TEST(Learning, WorksInBothTypes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TrainingConfig config = small();
    config.dtype = dtype;
    config.steps = 60;
    config.model = config.model.with("channels", 32);
    const Losses learned = train_with_two_threads(config);
    EXPECT_NEAR(learned.losses.front(), std::log(50), 0.3);
    EXPECT_LT(learned.losses.back(), 1.0);
  }
}

TEST(Learning, WorksWithoutMastersAsWithThem) {
  TrainingConfig with = small();
  with.dtype = DType::bf16;
  with.steps = 60;
  with.model = with.model.with("channels", 32);
  const Losses a = train_with_two_threads(with), b = train_with_two_threads(without_masters(with));
  EXPECT_EQ(a.losses.front(), b.losses.front());
  EXPECT_LT(b.losses.back(), 1.0);
  EXPECT_NEAR(a.losses.back(), b.losses.back(), 0.25);
}

}  // namespace
}  // namespace spool::testing
