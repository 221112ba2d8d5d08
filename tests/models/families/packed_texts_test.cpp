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

// Of each family, and the same with adapters.
std::vector<ModelConfig> small_models() {
  const ModelConfig gpt2 =
      Gpt2Config{.layers = 2, .heads = 2, .channels = 16, .context = 16, .vocabulary = 40};
  const ModelConfig llama = LlamaConfig{.layers = 2,
                                        .channels = 24,
                                        .inner = 40,
                                        .context = 16,
                                        .vocabulary = 40,
                                        .heads = {.query = 4, .key = 2},
                                        .head = 8,
                                        .qkv_bias = true};
  const LoraConfig lora{.rank = 3, .alpha = 6};
  return {gpt2, llama, gpt2.adapted(lora), llama.adapted(lora)};
}
constexpr size_t models = 4;

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
    for (Parameter* p : model_->parameters().trainable()) {
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
      EXPECT_NEAR(found[i][j], wanted[i][j], 1e-9)
          << model_->parameters().trainable()[i]->name << " " << j;
    }
  }
}

TEST_P(PackedTexts, SeeEachOtherWithoutTheirOwnPositions) {
  const double alone = loss({3, 1, 4}, {1, 4, 1}) + loss({5, 9, 2}, {9, 2, 6});
  EXPECT_GT(std::abs(loss({3, 1, 4, 5, 9, 2}, {1, 4, 1, 9, 2, 6}) - alone), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(EachFamily, PackedTexts, ::testing::Range<size_t>(0, models));

// Rows of texts of random lengths, and what is left of them.
struct RowsOfTexts {
  static constexpr int64_t T = 48;
  std::vector<Ids> texts = {};
  std::vector<std::vector<size_t>> rows = {};

  explicit RowsOfTexts(uint64_t seed) {
    Random random(seed);
    rows.resize(3);
    for (std::vector<size_t>& row : rows) {
      int64_t left = T - static_cast<int64_t>(random.next() % 5);
      while (left > 0) {
        const auto length = std::min(left, static_cast<int64_t>(1 + random.next() % 20));
        row.push_back(texts.size());
        Ids& text = texts.emplace_back();
        for (int64_t i = 0; i < length; ++i)
          text.push_back(static_cast<int32_t>(random.next() % 40));
        left -= length;
      }
    }
  }
};

struct Results {
  Numbers logits = {};  // of all texts, one after the other
  std::vector<Numbers> gradients = {};
};

class PackedRows : public ::testing::TestWithParam<std::tuple<size_t, DType>> {
 protected:
  PackedRows() {
    uint64_t seed = 1;
    for (Parameter* p : model_->parameters()) {
      p->data = normal(p->data.shape(), type_, stream_, seed++, 0.2);
    }
    model_->clear_padding();
  }

  // The logits of some places, and the gradients of their losses, which are added to those before.
  void add(const Text& text, const Tensor& targets, Tape& tape, Results& to, const auto& take) {
    const Var hidden = model_->hidden(text);
    take(values(model_->logits(hidden).tensor()), to.logits);
    constexpr float no_dropout = 0;
    const Var sum = model_->loss(text, tape.input(targets), no_dropout, Reduction::sum);
    tape.backward(sum);
  }
  void take_gradients(Results& to) {
    for (Parameter* p : model_->parameters().trainable()) {
      to.gradients.push_back(values(p->grad));
      p->grad = {};
    }
  }
  // Each token is to be learnt where it stands.
  Results alone(const RowsOfTexts& all) {
    Results results;
    for (const Ids& text : all.texts) {
      Tape tape(stream_);
      const Tensor tokens = make_tensor<int32_t>({1, std::ssize(text)}, text, stream_);
      add(tape.input(tokens), tokens, tape, results, [](const Numbers& found, Numbers& logits) {
        logits.insert(logits.end(), found.begin(), found.end());
      });
    }
    take_gradients(results);
    return results;
  }
  Results packed(const RowsOfTexts& all) {
    const auto places = all.rows.size() * RowsOfTexts::T;
    Ids tokens(places), targets(places, CrossEntropyOptions{}.ignore_index), positions(places),
        first;
    for (size_t i = 0; i < places; ++i) first.push_back(static_cast<int32_t>(i % RowsOfTexts::T));
    std::vector<size_t> taken;
    for (size_t row = 0; row < all.rows.size(); ++row) {
      size_t at = row * RowsOfTexts::T;
      for (const size_t text : all.rows[row]) {
        const auto begin = static_cast<int32_t>(at % RowsOfTexts::T);
        for (size_t i = 0; i < all.texts[text].size(); ++i, ++at) {
          tokens[at] = targets[at] = all.texts[text][i];
          positions[at] = static_cast<int32_t>(i);
          first[at] = begin;
          taken.push_back(at);
        }
      }
    }
    const Shape shape{std::ssize(all.rows), RowsOfTexts::T};
    const auto on = [&](const Ids& ids) { return make_tensor<int32_t>(shape, ids, stream_); };
    Tape tape(stream_);
    const Text text(tape.input(on(tokens)), tape.input(on(positions)), tape.input(on(first)));
    Results results;
    add(text, on(targets), tape, results, [&](const Numbers& found, Numbers& logits) {
      const size_t V = found.size() / places;
      for (const size_t at : taken) {
        const auto begin = found.begin() + static_cast<std::ptrdiff_t>(at * V);
        logits.insert(logits.end(), begin, begin + static_cast<std::ptrdiff_t>(V));
      }
    });
    take_gradients(results);
    return results;
  }

  DType type_ = std::get<1>(GetParam());
  CpuStream stream_{size_t{256} << 20, 2};
  std::shared_ptr<Model> model_ = [&] {
    const ModelConfig small = small_models()[std::get<0>(GetParam())];
    return small.with("context", RowsOfTexts::T).make(type_, stream_);
  }();
};

TEST_P(PackedRows, HaveTheLogitsAndTheGradientsOfTheirTexts) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const RowsOfTexts rows(seed);
    const Results wanted = alone(rows), found = packed(rows);
    EXPECT_LT(difference(found.logits, wanted.logits), tolerance(type_));
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      EXPECT_LT(difference(found.gradients[i], wanted.gradients[i]), tolerance(type_))
          << model_->parameters().trainable()[i]->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachFamily, PackedRows,
                         ::testing::Combine(::testing::Range<size_t>(0, models),
                                            ::testing::Values(DType::f64, DType::f32)));

}  // namespace
}  // namespace spool::testing
