// Texts that share a row: each is read and learnt as if it were alone.

#include <gtest/gtest.h>

#include <cmath>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llama_config.h"
#include "spool/models/families/model.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Ids = std::vector<int32_t>;

std::vector<ModelConfig> small_models() {
  return {Gpt2Config{.layers = 2, .heads = 2, .channels = 16, .context = 16, .vocabulary = 40},
          LlamaConfig{.layers = 2,
                      .channels = 24,
                      .inner = 40,
                      .context = 16,
                      .vocabulary = 40,
                      .heads = {.query = 4, .key = 2},
                      .head = 8,
                      .qkv_bias = true}};
}

class PackedTexts : public ::testing::TestWithParam<size_t> {
 protected:
  PackedTexts() {
    uint64_t seed = 1;
    for (Parameter* p : model_->parameters()) {
      p->data = normal(p->data.shape(), DType::f64, stream_, seed++, 0.3);
    }
    model_->clear_padding();
  }

  Tensor row(const Ids& ids) {
    return make_tensor<int32_t>({1, static_cast<int64_t>(ids.size())}, ids, stream_);
  }
  // The sum of the losses of a row.
  double loss(const Ids& tokens, const Ids& targets, const Ids& positions = {},
              const Ids& first = {}) {
    Tape tape(stream_);
    const Text text = positions.empty() ? Text(tape.input(row(tokens)))
                                        : Text(tape.input(row(tokens)), tape.input(row(positions)),
                                               tape.input(row(first)));
    constexpr float no_dropout = 0;
    const Var sum = model_->loss(text, tape.input(row(targets)), no_dropout, Reduction::sum);
    const double value = values(sum.tensor()).front();
    tape.backward(sum);
    return value;
  }
  std::vector<Numbers> gradients() {
    std::vector<Numbers> all;
    for (Parameter* p : model_->parameters()) {
      all.push_back(values(p->grad));
      p->grad = {};
    }
    return all;
  }

  CpuStream stream_{size_t{64} << 20, 2};
  std::shared_ptr<Model> model_ = small_models()[GetParam()].make(DType::f64, stream_);
};

TEST_P(PackedTexts, HaveTheLossAndTheGradientsOfEachAlone) {
  constexpr int32_t ignored = CrossEntropyOptions{}.ignore_index;
  const double alone = loss({3, 1, 4, 1}, {1, 4, 1, ignored}) + loss({5, 9, 2}, {9, 2, 6});
  const std::vector<Numbers> wanted = gradients();

  const double packed = loss({3, 1, 4, 1, 5, 9, 2}, {1, 4, 1, ignored, 9, 2, 6},
                             {0, 1, 2, 3, 0, 1, 2}, {0, 0, 0, 0, 4, 4, 4});
  EXPECT_NEAR(packed, alone, 1e-9);
  const std::vector<Numbers> found = gradients();
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), wanted[i].size());
    for (size_t j = 0; j < found[i].size(); ++j) {
      EXPECT_NEAR(found[i][j], wanted[i][j], 1e-9) << model_->parameters()[i]->name << " " << j;
    }
  }
}

TEST_P(PackedTexts, SeeEachOtherWithoutTheirOwnPositions) {
  const double alone = loss({3, 1, 4}, {1, 4, 1}) + loss({5, 9, 2}, {9, 2, 6});
  EXPECT_GT(std::abs(loss({3, 1, 4, 5, 9, 2}, {1, 4, 1, 9, 2, 6}) - alone), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(EachFamily, PackedTexts, ::testing::Range<size_t>(0, 2));

}  // namespace
}  // namespace spool::testing
