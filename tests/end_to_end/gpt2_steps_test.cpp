// runs: numbers
// Steps of AdamW on GPT-2: the losses of PyTorch (tests/reference/README.md), and the padding.

#include "spool/models/families/gpt2.h"
#include "spool/models/optimizers/adamw.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/families/reference_testing.h"

namespace spool::testing {
namespace {

class Gpt2Steps : public ReferenceModel {};
INSTANTIATE_TEST_SUITE_P(Gpt2, Gpt2Steps,
                         ::testing::ValuesIn(with_cuda({{DeviceType::cpu, DType::f32}})), name_of);

TEST_P(Gpt2Steps, HaveTheLossesOfPyTorch) {
  const auto losses = values(load("losses", {11}, DType::f64));
  const auto norms = values(load("gradient_norms", {10}, DType::f64));
  AdamWOptimizer optimizer(model.parameters(), {}, stream);
  optimizer.initialise();
  for (size_t step = 0; step <= 10; ++step) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = model.loss(tape.input(tokens), tape.input(targets));
    EXPECT_NEAR(values(loss.tensor()).front(), losses[step], 1e-4 * losses[step]) << step;
    if (step == 10) break;
    tape.backward(loss);
    optimizer.step(0.01);
    EXPECT_NEAR(read<float>(optimizer.clip())[1], norms[step], 1e-4 * norms[step]) << step;
  }
  expect_tensors("final.", weights(), 1e-3, {"wte.weight", "h.1.mlp.c_proj.weight", "ln_f.bias"});
}

TEST(Gpt2Padding, StaysZero) {
  CpuStream stream(size_t{64} << 20, 2);
  Gpt2 model(reference_config, DType::f32, stream);
  model.initialise(3);
  AdamWOptimizer optimizer(model.parameters(), {}, stream);
  optimizer.initialise();
  const std::vector<int32_t> ids(26, 5);
  const Tensor tokens = make_tensor<int32_t>({2, 13}, ids, stream);
  for (int64_t t = 1; t <= 3; ++t) {
    Tape tape(stream, {.backward_follows = true});
    tape.backward(model.loss(tape.input(tokens), tape.input(tokens)));
    optimizer.step(0.1);
  }
  const Tensor padding = model.parameters()[0]->data.slice({61, 64});
  EXPECT_EQ(values(padding), std::vector<double>(3 * 24, 0.0));
}

}  // namespace
}  // namespace spool::testing
