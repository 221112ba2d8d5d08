// runs: numbers
// Losses of a model loaded from a file, and its answers to multiple-choice questions.

#include "spool/models/inference/loaded_model.h"
#include "spool/models/families/gpt2.h"

#include <algorithm>
#include <cmath>

#include "spool/models/inference/multiple_choice.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/data/token_list.h"
#include "tests/models/inference/questions_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr Gpt2Config small{.layers = 1, .heads = 2, .channels = 8, .context = 12, .vocabulary = 20};

class LoadedModelTest : public ::testing::Test {
 protected:
  LoadedModelTest() {
    Gpt2 model(small, DType::f32, stream_);
    uint64_t seed = 1;
    for (Parameter* p : model.parameters()) {
      p->data = normal(p->data.shape(), DType::f32, stream_, ++seed);
    }
    model.clear_padding();
    save_model(d_.path(), model, {});
  }

  // -log p of each token after the first, by a full forward pass.
  std::vector<double> losses_of(const std::vector<int32_t>& tokens) {
    const ModelFile file(d_.path());
    Gpt2 model(small, DType::f32, stream_);
    file.load(model);
    const auto T = static_cast<int64_t>(tokens.size()) - 1;
    Tape tape(stream_, {.recording = false, .training = false});
    const Var ids = tape.input(
        make_tensor<int32_t>({1, T}, std::span(tokens).first(tokens.size() - 1), stream_));
    const std::vector<double> logits = values(model.logits(model.hidden(ids)).tensor());
    std::vector<double> all;
    for (size_t t = 0; t + 1 < tokens.size(); ++t) {
      const auto row = std::span(logits).subspan(t * 64, 20);
      double sum = 0;
      for (const double z : row) sum += std::exp(z);
      all.push_back(std::log(sum) - row[static_cast<size_t>(tokens[t + 1])]);
    }
    return all;
  }

  CpuStream stream_{size_t{16} << 20, 2};
  const TemporaryDirectory d_;
};

TEST_F(LoadedModelTest, HasTheLossesOfAWholePass) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 31; ++i) tokens.push_back(i * i % 20);
  double expected = 0;
  // Rows of 12 targets each, the last of 6.
  for (size_t begin = 0; begin < 30; begin += 12) {
    const size_t end = std::min<size_t>(begin + 13, 31);
    for (const double loss : losses_of({tokens.begin() + static_cast<int64_t>(begin),
                                        tokens.begin() + static_cast<int64_t>(end)})) {
      expected += loss;
    }
  }
  for (const int64_t batch : {1, 2, 5}) {
    LoadedModel model(ModelFile(d_.path()), {.batch = batch, .threads = 2});
    EXPECT_EQ(model.seq(), 12);
    const ValidationRows rows(std::make_shared<TokenList>(tokens), model.seq());
    std::vector<int64_t> progress;
    const double loss =
        model.evaluator().mean_loss(rows, [&](int64_t done) { progress.push_back(done); });
    EXPECT_EQ(targets_of(rows), 30);
    EXPECT_NEAR(loss, expected / 30, 1e-4 * expected / 30) << batch;
    EXPECT_EQ(static_cast<int64_t>(progress.size()), (3 + batch - 1) / batch);
    EXPECT_EQ(progress.back(), 3);
  }
}

TEST_F(LoadedModelTest, RefusesRowsBeyondTheContextAndNoRows) {
  const ModelFile file(d_.path());
  expect_error(ErrorKind::invalid, {"sequence length 13", "12"},
               [&] { LoadedModel(file, {.seq = 13}); });
  expect_error(ErrorKind::invalid, {"batch of 0 rows"}, [&] { LoadedModel(file, {.batch = 0}); });
}

TEST_F(LoadedModelTest, AnswersWithTheLikeliestCompletion) {
  const fs::path path = d_.file("q.bin", file_of({20240522, 1, 2, 30}, two_questions()));
  EXPECT_TRUE(has_questions(path));
  const std::vector<Question> questions = read_questions(path, 20);
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].context, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(questions[1].completions[1], (std::vector<int32_t>{9, 10, 11}));
  EXPECT_EQ(longest_row(questions), 4);
  ChoiceResult expected;
  for (const Question& q : questions) {
    std::vector<double> sums, means;
    for (const auto& completion : q.completions) {
      std::vector<int32_t> row = q.context;
      row.insert(row.end(), completion.begin(), completion.end());
      const std::vector<double> losses = losses_of(row);
      double sum = 0;
      for (size_t i = q.context.size() - 1; i < losses.size(); ++i) sum += losses[i];
      sums.push_back(sum);
      means.push_back(sum / static_cast<double>(completion.size()));
    }
    ++expected.questions;
    expected.right_by_sum += std::ranges::min_element(sums) - sums.begin() == q.answer;
    expected.right_by_mean += std::ranges::min_element(means) - means.begin() == q.answer;
  }
  // Asked again with other right answers, so that both right and wrong ones are counted.
  for (const int64_t batch : {1, 2, 4, 7}) {
    for (const int32_t shift : {0, 1}) {
      std::vector<Question> asked = questions;
      if (shift) {
        for (Question& q : asked) q.answer = 0;
      }
      LoadedModel model(ModelFile(d_.path()), {.batch = batch, .seq = 5, .threads = 2});
      int64_t seen = 0;
      const ChoiceResult r =
          answer_questions(asked, model.evaluator(), batch, model.seq(),
                           [&](const ChoiceResult& so_far) { seen = so_far.questions; });
      EXPECT_EQ(seen, 2);
      EXPECT_EQ(r.questions, 2);
      if (shift) continue;
      EXPECT_EQ(r.right_by_sum, expected.right_by_sum) << batch;
      EXPECT_EQ(r.right_by_mean, expected.right_by_mean) << batch;
    }
  }
}

}  // namespace
}  // namespace spool::testing
