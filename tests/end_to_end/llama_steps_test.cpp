// runs: numbers
// Steps of AdamW on tiny models of the Llama family, and texts that they write: the losses of
// PyTorch, and the tokens of transformers (tests/reference/README.md).

#include "spool/models/inference/generator.h"
#include "spool/models/optimizers/adamw.h"
#include "tests/models/families/llama_reference_testing.h"

namespace spool::testing {
namespace {

class LlamaSteps : public LlamaReferenceModel {};
INSTANTIATE_TEST_SUITE_P(Kind, LlamaSteps, llama_kinds(), name_of_kind);

TEST_P(LlamaSteps, HaveTheLossesOfPyTorch) {
  constexpr size_t steps = 5;
  const auto losses = values(expected("losses", {steps + 1}));
  const auto model = make(DType::f32);
  const Tensor batch = tokens(), wanted = targets();
  AdamWOptimizer optimizer(model->parameters(), {}, stream);
  for (size_t step = 0; step <= steps; ++step) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = model->loss(tape.input(batch), tape.input(wanted));
    EXPECT_NEAR(values(loss.tensor()).front(), losses[step], 1e-4 * losses[step]) << step;
    if (step == steps) break;
    tape.backward(loss);
    optimizer.step(/*learning_rate=*/0.01);
  }
  EXPECT_LT(losses[steps], losses[0] - 0.5);
}

class LlamaTexts : public LlamaReferenceModel {};
INSTANTIATE_TEST_SUITE_P(Kind, LlamaTexts, llama_kinds(), name_of_kind);

TEST_P(LlamaTexts, AreThoseOfTransformersAtTemperatureZero) {
  constexpr int64_t prompt = 6, written = 24;
  const std::vector<int32_t> wanted =
      read<int32_t>(expected("text", {1, prompt + written}, DType::i32));
  const auto model = make(DType::f32);
  for (const int64_t first : {prompt, int64_t{1} + prompt}) {
    std::vector<int32_t> text(wanted.begin(), wanted.begin() + first);
    Random random(1);
    Generator(*model, stream).extend(text, prompt + written - first, {.temperature = 0}, random);
    EXPECT_EQ(text, wanted);
  }
}

}  // namespace
}  // namespace spool::testing
