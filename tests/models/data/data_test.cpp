// Tokenizers, text files, and which windows of them are read when.

#include "spool/models/data/batches.h"

#include <sys/stat.h>

#include <numeric>
#include <set>

#include "spool/models/data/find_files.h"
#include "spool/models/data/token_files.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;
using testing::TemporaryDirectory;

// Token i is i.
class Counting : public TokenSource {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  std::string name() const override { return "counting"; }
  int64_t size() const override { return size_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    check(0 <= begin && begin + static_cast<int64_t>(out.size()) <= size_, "out of bounds");
    std::iota(out.begin(), out.end(), static_cast<int32_t>(begin));
  }

 private:
  int64_t size_;
};

Tokens counting(int64_t size) { return std::make_shared<Counting>(size); }

struct Row {
  std::vector<int32_t> tokens, targets;
  explicit Row(int64_t T) : tokens(static_cast<size_t>(T), -1), targets(tokens) {}
  bool operator==(const Row&) const = default;
};

template <class Source>
Row row_of(const Source& source, int64_t T, int64_t index) {
  Row row(T);
  source.fill(index, row.tokens, row.targets);
  return row;
}

std::vector<int32_t> all_of(const Tokens& tokens) {
  std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
  tokens->read(0, all);
  return all;
}

TEST(Texts, AreOneSequenceWhateverTheFiles) {
  const TemporaryDirectory d;
  const std::vector files = {d.file("b", "hello "), d.file("a", "w"), d.file("c", "orld\xff")};
  const Tokens texts = open_texts(files);
  const std::string whole = "hello world\xff";
  ASSERT_EQ(texts->size(), static_cast<int64_t>(whole.size()));
  for (size_t begin = 0; begin <= whole.size(); ++begin) {
    for (size_t count = 0; begin + count <= whole.size(); ++count) {
      std::vector<int32_t> out(count);
      texts->read(static_cast<int64_t>(begin), out);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], static_cast<unsigned char>(whole[begin + i]));
    }
  }
  std::vector<int32_t> out(3);
  EXPECT_NE(error_of([&] { texts->read(10, out); }), "");
  EXPECT_NE(error_of([&] { texts->read(-1, out); }), "");
  EXPECT_TRUE(contains(texts->name(), "b and 2 more"));
}

TEST(Texts, PatternsAreSortedAndNoFileComesTwice) {
  const TemporaryDirectory d;
  d.file("b.txt", "b"), d.file("a.txt", "a"), d.file("empty.txt", ""), d.file("d.txt/x", "x");
  d.file("[x].txt", "brackets");
  const auto names = [&](std::vector<std::string> patterns) {
    std::string all;
    for (std::string& p : patterns) p = (d.path() / p).string();
    for (const fs::path& file : find_files(patterns)) all += file.filename().string() + " ";
    return all;
  };
  EXPECT_EQ(names({"[ab].txt"}), "a.txt b.txt ");
  EXPECT_EQ(names({"b.txt", "*.txt"}), "b.txt [x].txt a.txt ");
  EXPECT_EQ(names({"a.txt", "d.txt/../a.txt"}), "a.txt ");
  EXPECT_EQ(names({"[x].txt"}), "[x].txt ");
}

TEST(Texts, WhatCannotBeReadIsASentence) {
  const TemporaryDirectory d;
  d.file("empty", ""), d.file("empties/a", ""), d.file("file", "text");
  ASSERT_EQ(::mkfifo((d.path() / "pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", d.path() / "dangling");
  const auto error = [&](const std::string& name) {
    const std::vector<std::string> patterns = {(d.path() / name).string()};
    const std::string text = error_of([&] { open_texts(find_files(patterns)); });
    EXPECT_TRUE(contains(text, d.path().string())) << name << ": " << text;
    return text;
  };
  EXPECT_TRUE(contains(error("missing.txt"), "no such file"));
  EXPECT_TRUE(contains(error("dangling"), "no such file"));
  EXPECT_TRUE(contains(error("*.txt"), "no file matches"));
  EXPECT_TRUE(contains(error("empties/*"), "empty files"));
  EXPECT_TRUE(contains(error("empty"), "is empty"));
  EXPECT_TRUE(contains(error("empties"), "is a directory"));
  EXPECT_TRUE(contains(error("pipe"), "not a regular file"));
  EXPECT_TRUE(contains(error("**/*.txt"), "**"));
  EXPECT_NE(error("file/below"), "");
  EXPECT_TRUE(contains(error(std::string(300, 'x')), "File name too long"));
  EXPECT_NE(error_of([] { open_texts({}); }), "");
}

TEST(Texts, TheDefaultIsTheRepository) {
  const fs::path root = fs::path(__FILE__).parent_path().parent_path();
  const auto files = default_texts(root);
  EXPECT_TRUE(std::ranges::is_sorted(files));
  EXPECT_NE(std::ranges::find(files, root / "models" / "data.h"), files.end());
  EXPECT_GT(open_texts(files)->size(), 50000);
  const TemporaryDirectory d;
  EXPECT_TRUE(contains(error_of([&] { default_texts(d.path()); }), "name text files"));
}

TEST(Split, KeepsTheLastTenthUnlessValidationIsGiven) {
  const Split tenth = split_validation(counting(109), nullptr);
  EXPECT_EQ(tenth.training->size(), 99);
  EXPECT_EQ(tenth.validation->size(), 10);
  EXPECT_EQ(all_of(tenth.training).back(), 98);
  EXPECT_EQ(all_of(tenth.validation).front(), 99);
  EXPECT_EQ(all_of(tenth.validation).back(), 108);
  std::vector<int32_t> two(2);
  EXPECT_NE(error_of([&] { tenth.training->read(98, two); }), "");
  const Split given = split_validation(counting(109), counting(7));
  EXPECT_EQ(given.training->size(), 109);
  EXPECT_EQ(given.validation->size(), 7);
}

TEST(Permutation, TakesEveryPlaceOnce) {
  for (int64_t extent : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    for (uint64_t number : {0, 1, 2}) {
      const Permutation permutation(extent, /*seed=*/3, number);
      std::vector<bool> seen(static_cast<size_t>(extent));
      for (int64_t i = 0; i < extent; ++i) {
        const int64_t place = permutation[i];
        ASSERT_TRUE(0 <= place && place < extent);
        ASSERT_FALSE(seen[static_cast<size_t>(place)]);
        seen[static_cast<size_t>(place)] = true;
      }
    }
  }
  const Permutation large(int64_t{1} << 40, 3, 0);
  EXPECT_LT(large[12345], int64_t{1} << 40);
  EXPECT_NE(large[12345], large[12346]);
}

// Every thing must come to every place about equally often: chi-square with 63 degrees of freedom
// is within 63 +- 5 * sqrt(2 * 63) but for luck of one in a million.
TEST(Permutation, IsShuffled) {
  constexpr int64_t extent = 64, trials = 6400;
  for (int64_t thing : {0, 1, 31, 63}) {
    std::vector<double> counts(extent);
    for (uint64_t number = 0; number < trials; ++number)
      ++counts[static_cast<size_t>(Permutation(extent, 11, number)[thing])];
    double chi = 0;
    for (double count : counts) chi += (count - 100) * (count - 100) / 100;
    EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63.0));
    EXPECT_GT(chi, 63 - 5 * std::sqrt(2 * 63.0));
  }
}

TEST(Batches, AnEpochReadsEveryWindowOnce) {
  constexpr int64_t T = 7;
  const Batches batches(counting(1000), T, /*seed=*/1);
  ASSERT_EQ(batches.rows_per_epoch(), 1000 / T - 1);
  std::set<int64_t> phases;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::set<int64_t> begins;
    for (int64_t i = 0; i < batches.rows_per_epoch(); ++i) {
      const Row row = row_of(batches, T, epoch * batches.rows_per_epoch() + i);
      begins.insert(row.tokens[0]);
      for (size_t t = 0; t < T; ++t) {
        ASSERT_EQ(row.tokens[t], row.tokens[0] + static_cast<int32_t>(t));
        ASSERT_EQ(row.targets[t], row.tokens[t] + 1);
      }
    }
    ASSERT_EQ(static_cast<int64_t>(begins.size()), batches.rows_per_epoch());
    EXPECT_EQ(*begins.rbegin() - *begins.begin(), T * (batches.rows_per_epoch() - 1));
    phases.insert(*begins.begin());
  }
  EXPECT_GT(phases.size(), 1u);
}

TEST(Batches, OverTheEpochsEveryTokenIsRead) {
  constexpr int64_t T = 8;
  for (int64_t n : {10, 11, 15, 16, 17, 23, 24, 31, 40}) {
    const Batches batches(counting(n), T, /*seed=*/2);
    std::set<int32_t> read;
    for (int64_t i = 0; i < 300 * batches.rows_per_epoch(); ++i) {
      const Row row = row_of(batches, T, i);
      read.insert(row.tokens.begin(), row.tokens.end());
      read.insert(row.targets.begin(), row.targets.end());
    }
    EXPECT_EQ(static_cast<int64_t>(read.size()), n);
  }
}

TEST(Batches, ARowIsAFunctionOfTheSeedAndItsIndex) {
  constexpr int64_t T = 16;
  const Batches a(counting(5000), T, 1), b(counting(5000), T, 1), other(counting(5000), T, 2);
  std::vector<Row> forward, backward;
  for (int64_t i = 0; i < 700; ++i) forward.push_back(row_of(a, T, i));
  for (int64_t i = 700; i-- > 0;) backward.push_back(row_of(b, T, i));
  std::ranges::reverse(backward);
  EXPECT_EQ(forward, backward);
  int same = 0, ordered = 0, repeated = 0;
  const int64_t epoch = a.rows_per_epoch();
  for (int64_t i = 0; i < epoch; ++i) {
    same += a.begin(i) / T == other.begin(i) / T;
    ordered += a.begin(i + 1) - a.begin(i) == T;
    repeated += a.begin(i) / T == a.begin(i + epoch) / T;
  }
  EXPECT_LT(same, 10);
  EXPECT_LT(ordered, 10);
  EXPECT_LT(repeated, 10);
}

// Changing the order would change every run that is resumed.
TEST(Batches, TheOrderIsTheSameInEveryVersion) {
  const Batches batches(counting(100000), 64, /*seed=*/1337);
  std::vector<int64_t> begins;
  for (int64_t i : {0, 1, 2, 1560, 1561, 1000000}) begins.push_back(batches.begin(i));
  EXPECT_EQ(begins, (std::vector<int64_t>{65504, 65312, 73184, 57376, 70620, 27082}));
}

TEST(Batches, TooLittleDataSaysWhatWouldFit) {
  EXPECT_EQ(error_of([] { Batches(counting(66), 64, 1); }), "");
  const std::string text = error_of([] { Batches(counting(65), 64, 1); });
  EXPECT_TRUE(contains(text, "65 tokens")) << text;
  EXPECT_TRUE(contains(text, "63 or less")) << text;
  EXPECT_EQ(error_of([] { Batches(counting(65), 63, 1); }), "");
  EXPECT_TRUE(contains(error_of([] { Batches(counting(2), 1, 1); }), "2 tokens"));
  EXPECT_NE(error_of([] { Batches(counting(9), 0, 1); }), "");
  EXPECT_NE(error_of([] { Batches(counting(9), -3, 1); }), "");
  EXPECT_NE(error_of([] { Batches(counting(9), INT64_MAX, 1); }), "");
  EXPECT_NE(error_of([] { row_of(Batches(counting(9), 3, 1), 4, 0); }), "");
  EXPECT_NE(error_of([] { row_of(Batches(counting(9), 3, 1), 3, -1); }), "");
}

TEST(ValidationRows, EveryTargetCountsOnce) {
  for (int64_t T : {1, 5, 8}) {
    for (int64_t n = 2; n < 40; ++n) {
      const ValidationRows validation(counting(n), T);
      std::vector<int32_t> counted;
      for (int64_t i = 0; i < validation.rows() + 2; ++i) {
        const Row row = row_of(validation, T, i);
        for (size_t t = 0; t < row.tokens.size(); ++t) {
          if (row.targets[t] == ignored_target) continue;
          counted.push_back(row.targets[t]);
          ASSERT_EQ(row.tokens[t], row.targets[t] - 1);
        }
        ASSERT_GE(std::ranges::min(row.tokens), 0);
      }
      std::vector<int32_t> expected(static_cast<size_t>(n - 1));
      std::iota(expected.begin(), expected.end(), 1);
      ASSERT_EQ(counted, expected);
      ASSERT_EQ(validation.targets(), n - 1);
      ASSERT_EQ(validation.rows(), (n - 1) / T + ((n - 1) % T != 0));
    }
  }
}

TEST(ValidationRows, AFewAreSpreadEvenly) {
  const ValidationRows few(counting(1003), /*T=*/10, /*limit=*/7);
  ASSERT_EQ(few.rows(), 7);
  EXPECT_EQ(few.targets(), 70);
  for (int64_t i = 0; i < 7; ++i) {
    const Row row = row_of(few, 10, i);
    EXPECT_EQ(row.tokens[0] / 10, i * 101 / 7);
    EXPECT_EQ(row.tokens[0] % 10, 0);
    EXPECT_EQ(row.targets[9], row.tokens[0] + 10);
  }
  EXPECT_EQ(ValidationRows(counting(1003), 10, 500).rows(), 101);
}

TEST(ValidationRows, TooLittleDataIsASentence) {
  EXPECT_EQ(error_of([] { ValidationRows(counting(2), 8); }), "");
  EXPECT_EQ(ValidationRows(counting(9), INT64_MAX).targets(), 8);
  EXPECT_TRUE(contains(error_of([] { ValidationRows(counting(1), 8); }), "has 1 tokens"));
  EXPECT_NE(error_of([] { ValidationRows(counting(9), 0); }), "");
  EXPECT_NE(error_of([] { ValidationRows(counting(9), 3, -1); }), "");
}

}  // namespace
}  // namespace spool
