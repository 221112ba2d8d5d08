// Misuse of AdamW is reported, and changes nothing.

#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const std::vector<int64_t> numels{5000, 70001, 3};

TEST(OptimizerMisuse, AStepBelowOneIsRefused) {
  for (const OptimizerState state : optimizer_states) {
    OptimizerRun run(numels, {}, state);
    const Bytes before = run.bytes();
    for (const int64_t t : {0, -3}) {
      run.make_gradients(1);
      expect_error(ErrorKind::invalid, {"adamw", std::to_string(t), "counted from 1"},
                   [&] { run.step(t); });
    }
    EXPECT_TRUE(run.bytes() == before);
    run.step(1);
    EXPECT_FALSE(run.bytes() == before);
  }
}

TEST(OptimizerMisuse, AnUpdateBeforePrepareIsRefused) {
  for (const OptimizerState state : optimizer_states) {
    OptimizerRun run(numels, {}, state);
    run.make_gradients(1);
    const auto update = [&] { run.optimizer->update(); };
    expect_error(ErrorKind::invalid, {"prepare()", "before each update()"}, update);
    run.step(1);
    run.make_gradients(2);
    expect_error(ErrorKind::invalid, {"prepare()", "before each update()"}, update);
  }
}

TEST(OptimizerMisuse, AGradientOfAnotherSizeIsRefused) {
  for (const OptimizerState state : optimizer_states) {
    OptimizerRun run(numels, {}, state);
    const Bytes before = run.bytes();
    run.make_gradients(1);
    const Tensor fits = run.parameters[1].grad;
    run.parameters[1].grad = normal({7}, DType::f32, run.stream, 1);
    expect_error(ErrorKind::invalid, {"adamw: the gradient of", "f32 (7)", "f32 (70001, 1)"},
                 [&] { run.step(1); });
    EXPECT_TRUE(run.bytes() == before);
    run.parameters[1].grad = fits;
    run.step(1);
    EXPECT_FALSE(run.bytes() == before);
  }
}

TEST(OptimizerMisuse, AnUpdateWithoutGradientsIsRefused) {
  for (const OptimizerState state : optimizer_states) {
    OptimizerRun run(numels, {}, state);
    const Bytes before = run.bytes();
    expect_error(ErrorKind::invalid, {"no parameter has a gradient", "backward"},
                 [&] { run.step(1); });
    EXPECT_TRUE(run.bytes() == before);
    run.make_gradients(1);
    run.step(1);
    expect_error(ErrorKind::invalid, {"no parameter has a gradient"}, [&] { run.step(2); });
  }
}

}  // namespace
}  // namespace spool::testing
