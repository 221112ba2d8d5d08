// Losses of a model in a file, and answers to multiple-choice questions.

#include "spool/models/inference/loaded_model.h"

#include <algorithm>
#include <cmath>

#include "spool/models/data/batches.h"
#include "spool/models/inference/multiple_choice.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;
using testing::TemporaryDirectory;
using testing::values;

constexpr Gpt2Config small{.layers = 1, .heads = 2, .channels = 8, .context = 12, .vocabulary = 20};

using Words = std::vector<uint16_t>;

std::string file_of(std::vector<int32_t> header, const Words& words) {
  header.resize(256);
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  return bytes.append(reinterpret_cast<const char*>(words.data()), 2 * words.size());
}

// Two questions, with completions of several lengths.
const Words first = {65535, 28, 0, 1, 2, 3, 1, 2, 3, 2, 4, 5, 1, 6};
const Words second = {65535, 28, 1, 2, 3, 1, 7, 1, 8, 3, 9, 10, 11, 1};

Words two_questions() {
  Words all = first;
  all.insert(all.end(), second.begin(), second.end());
  all.push_back(12);
  all[first.size() + 1] = 30;
  return all;
}

class Evaluations : public ::testing::Test {
 protected:
  Evaluations() {
    Gpt2 model(small, DType::f32, stream_);
    uint64_t seed = 1;
    for (Parameter* p : model.parameters()) {
      p->data = testing::normal(p->data.shape(), DType::f32, stream_, ++seed);
    }
    model.clear_padding();
    save_model(d_.path(), model, {});
  }

  // log p of each token after the first, by the whole forward pass.
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

TEST_F(Evaluations, LossIsThatOfTheWholePass) {
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
  class Memory : public TokenSource {
   public:
    explicit Memory(std::vector<int32_t> all) : all_(std::move(all)) {}
    std::string name() const override { return "memory"; }
    int64_t size() const override { return static_cast<int64_t>(all_.size()); }
    void read(int64_t begin, std::span<int32_t> out) const override {
      std::copy_n(all_.begin() + begin, out.size(), out.begin());
    }

   private:
    std::vector<int32_t> all_;
  };
  for (const int64_t batch : {1, 2, 5}) {
    LoadedModel evaluation(ModelFile(d_.path()), {.batch = batch, .threads = 2});
    EXPECT_EQ(evaluation.seq(), 12);
    const ValidationRows rows(std::make_shared<Memory>(tokens), evaluation.seq());
    evaluation.evaluator().evaluate(
        rows.rows(), [&](int64_t row, auto to, auto targets) { rows.fill(row, to, targets); });
    EXPECT_EQ(rows.targets(), 30);
    EXPECT_NEAR(evaluation.evaluator().loss_sum(), expected, 1e-4 * expected) << batch;
  }
  const auto refusal = [&](const LoadedModel::Options& options) {
    return error_of([&] { LoadedModel(ModelFile(d_.path()), options); });
  };
  EXPECT_TRUE(contains(refusal({.seq = 13}), "sequence length 13"));
  EXPECT_TRUE(contains(refusal({.batch = 0}), "batch of 0 rows"));
}

TEST_F(Evaluations, AnswersAreTheLikeliestCompletions) {
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
  // Whatever is asked for is right for one answer of each question, so that all cases occur.
  for (const int64_t batch : {1, 2, 4, 7}) {
    for (const int32_t shift : {0, 1}) {
      std::vector<Question> asked = questions;
      if (shift) {
        for (Question& q : asked) q.answer = 0;
      }
      LoadedModel evaluation(ModelFile(d_.path()), {.batch = batch, .seq = 5, .threads = 2});
      int64_t seen = 0;
      const ChoiceResult r =
          answer_questions(asked, evaluation.evaluator(), batch, evaluation.seq(),
                           [&](const ChoiceResult& so_far) { seen = so_far.questions; });
      EXPECT_EQ(seen, 2);
      EXPECT_EQ(r.questions, 2);
      if (shift) continue;
      EXPECT_EQ(r.right_by_sum, expected.right_by_sum) << batch;
      EXPECT_EQ(r.right_by_mean, expected.right_by_mean) << batch;
    }
  }
}

TEST(Questions, EachFieldWrongInTurn) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& content) {
    return error_of([&] { read_questions(d.file("q.bin", content), 20); });
  };
  const Words words = two_questions();
  const std::string good = file_of({20240522, 1, 2, 30}, words);
  EXPECT_EQ(error(good), "");
  EXPECT_TRUE(contains(error(file_of({20240520, 1, 2}, words)), "magic"));
  EXPECT_TRUE(contains(error(file_of({20240522, 2, 2}, words)), "version"));
  for (const int32_t count : {0, -1, 65536, INT32_MIN}) {
    EXPECT_TRUE(contains(error(file_of({20240522, 1, count}, words)), "questions"));
  }
  EXPECT_TRUE(contains(error(file_of({20240522, 1, 1, 28}, words)), "words after its 1"));
  EXPECT_TRUE(contains(error(file_of({20240522, 1, 2, 29}, words)), "header field 3"));
  EXPECT_TRUE(contains(error(file_of({20240522, 1, 3}, words)), "question 2 ends before"));
  const std::pair<size_t, const char*> fields[] = {
      {0, "start"}, {1, "bytes"},   {2, "index"}, {3, "completions"},
      {4, ""},      {5, "context"}, {6, "token"}, {9, "completion"}};
  for (const auto& [field, word] : fields) {
    Words wrong = words;
    wrong[field] = field == 0 ? 3 : 60000;
    const std::string said = error(file_of({20240522, 1, 2}, wrong));
    EXPECT_TRUE(contains(said, "question 0") && contains(said, word)) << field << ": " << said;
    wrong[field] = 0;
    if (field == 2 || field == 3 || field == 6) continue;  // where 0 is right
    EXPECT_TRUE(contains(error(file_of({20240522, 1, 2}, wrong)), "question 0")) << field;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(contains(error(good.substr(0, size)), "q.bin: ")) << size;
  }
}

}  // namespace
}  // namespace spool
