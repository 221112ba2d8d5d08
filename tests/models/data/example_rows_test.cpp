// Rows of examples: what a step reads is a function of the seed and its number, each example is
// read once an epoch, and none sees another.

#include "spool/models/data/example_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "spool/models/data/example_reader.h"
#include "spool/runtime/random.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t seq = 32;

// Prompts and completions of random letters, by bytes.
class RowsOfExamples : public ::testing::Test {
 protected:
  std::shared_ptr<const Examples> some_examples(int count) {
    Random random(7);
    const auto letters = [&](uint64_t most) {
      std::string text;
      for (uint64_t n = 1 + random.next() % most; n > 0; --n) {
        text += static_cast<char>('a' + random.next() % 26);
      }
      return text;
    };
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines +=
          sentence("{\"prompt\": \"", letters(8), "\", \"completion\": \"", letters(16), "\"}\n");
    }
    const std::vector files{directory_.file("lines.jsonl", lines)};
    return ExampleReader{.tokenizer = *tokenizer_, .options = {.seq = seq}}.read(files);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
};

RowList all_rows(const std::shared_ptr<const Examples>& examples, bool packs = true) {
  return {examples, {0, examples->size()}, seq, packs};
}

struct SeenExample {
  std::vector<int32_t> tokens = {}, targets = {};
  auto operator<=>(const SeenExample&) const = default;
};

// How often each example is in the rows of a batch, which are cut where positions begin again.
void count_examples(const TokenBatch& batch, std::map<SeenExample, int>& counts) {
  for (int64_t row = 0; row < batch.rows(); ++row) {
    for (int64_t i = 0; i < batch.T;) {
      const auto place = [&](int64_t at) { return static_cast<size_t>(row * batch.T + at); };
      SeenExample one;
      const int64_t first = i;
      do {
        one.tokens.push_back(batch.tokens[place(i)]);
        one.targets.push_back(batch.targets[place(i)]);
        EXPECT_EQ(batch.first[place(i)], first);
        EXPECT_EQ(batch.positions[place(i)], i - first);
        ++i;
      } while (i < batch.T && batch.positions[place(i)] > 0);
      if (one != SeenExample{{0}, {ignored_target}}) ++counts[one];
    }
  }
}

std::map<SeenExample, int> examples_alone(const Examples& examples) {
  std::map<SeenExample, int> counts;
  for (int64_t e = 0; e < examples.size(); ++e) {
    const auto tokens = examples.tokens(e);
    const auto learnt = examples.learnt(e);
    SeenExample one{.tokens = {tokens.begin(), tokens.end() - 1}};
    for (size_t i = 1; i < tokens.size(); ++i) {
      one.targets.push_back(learnt[i] ? tokens[i] : ignored_target);
    }
    ++counts[one];
  }
  return counts;
}

TEST_F(RowsOfExamples, AreReadOnceAnEpoch) {
  const auto examples = some_examples(200);
  const TrainingExamples rows(all_rows(examples), /*seed=*/3);
  for (const int64_t epoch : {0, 1, 5}) {
    std::map<SeenExample, int> counts;
    TokenBatch batch;
    for (int64_t row = 0; row < rows.rows(); ++row) {  // one by one
      const int64_t number = epoch * rows.rows() + row;
      rows.fill({number, number + 1}, batch);
      EXPECT_EQ(batch.valid, rows.targets(number));
      count_examples(batch, counts);
    }
    EXPECT_EQ(counts, examples_alone(*examples));
  }
}

TEST_F(RowsOfExamples, AreAFunctionOfTheSeedAndTheNumber) {
  const auto examples = some_examples(100);
  const TrainingExamples rows(all_rows(examples), 3), same(all_rows(examples), 3),
      other(all_rows(examples), 4);
  TokenBatch batch, again, another, later;
  rows.fill({5, 9}, batch);
  same.fill({0, 40}, again);  // more than one epoch at once
  for (int64_t row = 5; row < 9; ++row) {
    for (int64_t i = 0; i < seq; ++i) {
      const auto at = static_cast<size_t>((row - 5) * seq + i),
                 there = static_cast<size_t>(row * seq + i);
      EXPECT_EQ(batch.tokens[at], again.tokens[there]);
      EXPECT_EQ(batch.targets[at], again.targets[there]);
      EXPECT_EQ(batch.first[at], again.first[there]);
    }
  }
  other.fill({5, 9}, another);
  EXPECT_NE(batch.tokens, another.tokens);
  rows.fill({5 + rows.rows(), 9 + rows.rows()}, later);
  EXPECT_NE(batch.tokens, later.tokens);
}

TEST_F(RowsOfExamples, AreValidatedInOrderAndEvenlySpread) {
  const auto examples = some_examples(100);
  const auto list = std::make_shared<const RowList>(all_rows(examples));
  const ValidationExamples all(list), few(list, 4), more(list, 10000);
  EXPECT_EQ(all.rows(), list->size());
  EXPECT_EQ(more.rows(), list->size());
  EXPECT_EQ(targets_of(all), list->learnt());
  TokenBatch batch;
  all.fill({0, all.rows() + 3}, batch);  // with rows that pad the last batch
  EXPECT_EQ(batch.valid, list->learnt());
  std::map<SeenExample, int> counts;
  count_examples(batch, counts);
  EXPECT_EQ(counts, examples_alone(*examples));
  EXPECT_EQ(few.rows(), 4);
  few.fill({0, 4}, batch);
  EXPECT_EQ(batch.valid, targets_of(few));
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(few.targets(row), list->targets(row * list->size() / 4));
  }
  EXPECT_EQ(few.targets(4), 0);
}

TEST_F(RowsOfExamples, OfOneEachArePaddedAtTheRight) {
  const auto examples = some_examples(20);
  const RowList list = all_rows(examples, /*packs=*/false);
  ASSERT_EQ(list.size(), examples->size());
  TokenBatch batch;
  batch.clear(1, seq);
  list.write(3, 0, batch);
  EXPECT_FALSE(batch.is_packed());
  const int64_t inputs = examples->inputs(3);
  for (int64_t i = inputs; i < seq; ++i) {
    EXPECT_EQ(batch.tokens[static_cast<size_t>(i)], 0);
    EXPECT_EQ(batch.targets[static_cast<size_t>(i)], ignored_target);
  }
  const auto tokens = examples->tokens(3).first(static_cast<size_t>(inputs));
  EXPECT_TRUE(std::ranges::equal(tokens, std::span(batch.tokens).first(tokens.size())));
  EXPECT_LT(list.fill(), all_rows(examples).fill());
}

TEST_F(RowsOfExamples, MayBeOfSomeExamples) {
  const auto examples = some_examples(50);
  const RowList first(examples, {0, 40}, seq, true), rest(examples, {40, 50}, seq, true);
  EXPECT_EQ(first.learnt() + rest.learnt(), examples->counts().learnt);
  EXPECT_GT(rest.size(), 0);
}

TEST_F(RowsOfExamples, HavePromptsBeforeWhatIsLearnt) {
  const std::vector files{directory_.file(
      "lines.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"text\": \"defg\"}\n")};
  for (const bool learns_all : {false, true}) {
    const auto examples =
        ExampleReader{.tokenizer = *tokenizer_, .options = {.seq = 2, .learn_all = learns_all}}
            .read(files);
    EXPECT_EQ(tokenizer_->decode(examples->prompt(0)), "ab");
    EXPECT_TRUE(examples->prompt(1).empty());
    EXPECT_EQ(examples->targets(0), learns_all ? 2 : 1);
  }
}

TEST_F(RowsOfExamples, AreKnownByNameOrFirstLine) {
  const auto file = [&](const char* name, const std::string& text) {
    return directory_.file(name, text);
  };
  const auto is_one = [](const std::filesystem::path& path) {
    return are_examples(std::vector{path});
  };
  EXPECT_TRUE(is_one(file("a.jsonl", "")));
  EXPECT_TRUE(is_one(file("a.JSONL", "text")));
  EXPECT_TRUE(is_one(file("a.ndjson", "text")));
  EXPECT_TRUE(is_one(file("a.json", "{\"text\": \"x\"}\n")));
  EXPECT_TRUE(is_one(file("a", "\xef\xbb\xbf{\"text\": \"x\"}\r\nmore")));
  for (const char* text :
       {"", "{", "{\n\"text\": \"x\"}\n", "[1]\n", "text\n{\"a\": 1}\n", " {}\n"}) {
    EXPECT_FALSE(is_one(file("a.txt", text))) << text;
  }
  const std::vector both{file("a.jsonl", ""), file("b.txt", "text")};
  expect_error(ErrorKind::invalid, {"a.jsonl", "b.txt", "only one kind"},
               [&] { are_examples(both); });
  EXPECT_FALSE(are_examples(both, DataFormat::text));
  EXPECT_FALSE(are_examples({}));
}

TEST_F(RowsOfExamples, HaveSomethingToLearn) {
  const auto read = [&](const std::string& lines, const ExampleOptions& options) {
    const std::vector files{directory_.file("lines.jsonl", lines)};
    return ExampleReader{.tokenizer = *tokenizer_, .options = options}.read(files);
  };
  expect_error(ErrorKind::file, {"lines.jsonl", "no example"}, [&] { read("\n", {.seq = seq}); });
  expect_error(ErrorKind::file, {"1 example", "anything to learn", "rows of 1"},
               [&] { read("{\"prompt\": \"abc\", \"completion\": \"d\"}", {.seq = 1}); });
  expect_error(ErrorKind::invalid, {"line 1", "token", "rows for 0 to 98"},
               [&] { read("{\"text\": \"abc\"}", {.seq = seq, .rows = 99}); });
}

}  // namespace
}  // namespace spool::testing
