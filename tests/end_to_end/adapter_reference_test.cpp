// runs: numbers
// Adapters as PEFT saves them, of tiny models of six kinds and a GPT-2
// (tests/reference/make_lora_reference.py): logits, loss and gradients of a plain model in f64 that
// PEFT agrees with, a step of AdamW, and the weights that both make together.

#include <gtest/gtest.h>

#include <cmath>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/named_parameters.h"
#include "spool/models/optimizers/adamw.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/models/families/expected_tensors.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class AdapterReference : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t B = 2, T = 10, V = 50;

  static std::filesystem::path folder() {
    return source_folder() / "tests/reference/lora" / GetParam();
  }
  // The base is named by a path from the root of the sources.
  static ModelFile file() {
    return ModelFile({folder(), "", source_folder() / AdapterFile(folder()).base()});
  }

  std::shared_ptr<Model> with_adapters(DType dtype) {
    const ModelFile both = file();
    auto model = both.config().adapted(both.adapter()->lora()).make(dtype, stream);
    both.load(*model);
    return model;
  }
  std::shared_ptr<Model> merged(DType dtype) {
    const ModelFile both = file();
    auto model = both.config().make(dtype, stream);
    both.load(*model);
    return model;
  }

  Tensor expected(const std::string& name, const Shape& shape, DType type = DType::f64) {
    return expected_in(folder(), name, {shape, type}, stream);
  }
  Tensor tokens() { return expected("tokens", {B, T}, DType::i32); }
  Tensor targets() { return expected("targets", {B, T}, DType::i32); }

  Numbers logits(Model& model) { return logits_of(model, tokens(), stream); }
  double learn(Model& model) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = model.loss(tape.input(tokens()), tape.input(targets()));
    tape.backward(loss);
    return values(loss.tensor()).front();
  }

  CpuStream stream{size_t{64} << 20, 2};
};
INSTANTIATE_TEST_SUITE_P(Kind, AdapterReference,
                         ::testing::Values("llama", "qwen2", "qwen3", "smollm2", "tinyllama",
                                           "gpt2", "rank_stabilised", "few_targets", "all_linear"),
                         [](const auto& kind) { return std::string(kind.param); });

double tolerance(DType type) { return type == DType::f64 ? 1e-12 : 1e-5; }

TEST_P(AdapterReference, HasTheLogitsOfF64) {
  const Numbers wanted = values(expected("logits", {B, T, V}));
  for (const DType type : {DType::f64, DType::f32}) {
    EXPECT_LE(difference(logits(*with_adapters(type)), wanted), tolerance(type)) << name(type);
  }
}

TEST_P(AdapterReference, HasTheLossAndTheGradientsOfF64AndNoOthers) {
  for (const DType type : {DType::f64, DType::f32}) {
    const auto model = with_adapters(type);
    const double wanted = values(expected("loss", {1})).front();
    EXPECT_NEAR(learn(*model), wanted, tolerance(type) * wanted);
    std::vector<TensorContents> gradients;
    for (const Parameter* p : model->parameters()) {
      EXPECT_EQ(bool(p->grad), model->adapted_by(*p) != nullptr) << p->name;
      gradients.emplace_back(p->grad);
    }
    for (const NamedTensor& ours : stored(*model, gradients)) {
      const Numbers theirs = values(expected("grad." + ours.name, ours.tensor.shape()));
      EXPECT_LE(difference(values(ours.tensor.tensor()), theirs), tolerance(type))
          << name(type) << ", " << ours.name;
    }
  }
}

double norm(const Numbers& all) {
  double sum = 0;
  for (const double x : all) sum += x * x;
  return std::sqrt(sum);
}

// Adam's first step is about the learning rate for every element, however small its gradient, so A
// and B are compared by their norm.
TEST_P(AdapterReference, TakesTheStepsOfAdamW) {
  const auto model = with_adapters(DType::f32);
  AdamWOptimizer optimizer(model->parameters().trainable(), {.decay = 0, .clip = 0}, stream);
  optimizer.initialise();
  const Numbers losses = values(expected("losses", {6}));
  int compared = 0;
  for (const double wanted : losses) {
    EXPECT_NEAR(learn(*model), wanted, 1e-6 * wanted);
    optimizer.step(/*learning_rate=*/1e-3);
    if (wanted != losses.front()) continue;
    for (const NamedTensor& ours : stored_adapters(*model)) {
      if (!SafetensorsReader(folder() / "expected.safetensors").find("after." + ours.name))
        continue;
      Numbers theirs = values(expected("after." + ours.name, ours.tensor.shape()));
      const double size = norm(theirs);
      const Numbers mine = values(ours.tensor.tensor());
      for (size_t i = 0; i < mine.size(); ++i) theirs[i] -= mine[i];
      EXPECT_LE(norm(theirs), 1e-4 * size) << ours.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2);
}

TEST_P(AdapterReference, MergedIsWhatPeftMerges) {
  const Numbers wanted = values(expected("merged.logits", {B, T, V}, DType::f32));
  EXPECT_LE(difference(logits(*merged(DType::f32)), wanted), 1e-5);
}

// The sum of two bf16 numbers that were rounded first would be farther off.
TEST_P(AdapterReference, MergedInBf16IsRoundedOnce) {
  const auto exact = merged(DType::f32), rounded = merged(DType::bf16);
  for (size_t i = 0; i < exact->parameters().size(); ++i) {
    const Numbers wide = values(exact->parameters()[i]->data),
                  narrow = values(rounded->parameters()[i]->data);
    for (size_t j = 0; j < wide.size(); ++j) {
      ASSERT_EQ(narrow[j], static_cast<float>(bf16(static_cast<float>(wide[j]))));
    }
  }
}

TEST_P(AdapterReference, IsWrittenAsItWasRead) {
  const TemporaryDirectory d;
  const auto model = with_adapters(DType::f32);
  std::vector<TensorContents> data;
  for (const Parameter* p : model->parameters()) data.push_back(contents_of(*p));
  save_adapter(d.path(), *model, data, file().base());
  const SafetensorsReader theirs(folder() / adapter_weights_name),
      ours(d.path() / adapter_weights_name);
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const StoredTensor& t : theirs.tensors()) {
    const StoredTensor* const mine = ours.find(t.name);
    ASSERT_TRUE(mine && mine->spec == t.spec) << t.name;
    std::vector<std::byte> a(t.spec.nbytes()), b(a.size());
    theirs.read(t, 0, a), ours.read(*mine, 0, b);
    EXPECT_EQ(a, b) << t.name;
  }
  const LoraConfig before = AdapterFile(folder()).lora(), after = AdapterFile(d.path()).lora();
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace spool::testing
