// The rows of training and validation: which windows of the data are read, and in which order.

#include "spool/models/data/batches.h"

#include <numeric>
#include <set>

#include "tests/models/data/token_list.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using testing::expect_error;

using testing::counting;

// The batch of one row.
template <class Source>
TokenBatch row_of(const Source& source, int64_t index) {
  TokenBatch batch;
  source.fill({index, index + 1}, batch);
  return batch;
}

std::vector<int32_t> all_of(const Tokens& tokens) {
  std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
  tokens->read(0, all);
  return all;
}

TEST(Split, KeepsTheLastTenthUnlessValidationIsGiven) {
  const Split tenth = split_validation(counting(109), nullptr);
  EXPECT_EQ(tenth.training->size(), 99);
  EXPECT_EQ(tenth.validation->size(), 10);
  EXPECT_EQ(all_of(tenth.training).back(), 98);
  EXPECT_EQ(all_of(tenth.validation).front(), 99);
  EXPECT_EQ(all_of(tenth.validation).back(), 108);
  std::vector<int32_t> two(2);
  expect_error(ErrorKind::invalid, {"tokens 98 to 100 do not exist: there are 99"},
               [&] { tenth.training->read(98, two); });
  const Split given = split_validation(counting(109), counting(7));
  EXPECT_EQ(given.training->size(), 109);
  EXPECT_EQ(given.validation->size(), 7);
}

TEST(Permutation, HasEveryPlaceOnce) {
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

// Every element must come to every place about equally often: chi-square with 63 degrees of freedom
// is within 63 +- 5 * sqrt(2 * 63), except with a probability of about one in a million.
TEST(Permutation, MovesEveryElementToEveryPlaceEquallyOften) {
  constexpr int64_t extent = 64, trials = 6400;
  for (int64_t element : {0, 1, 31, 63}) {
    std::vector<double> counts(extent);
    for (uint64_t number = 0; number < trials; ++number)
      ++counts[static_cast<size_t>(Permutation(extent, 11, number)[element])];
    double chi = 0;
    for (double count : counts) chi += (count - 100) * (count - 100) / 100;
    EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63.0));
    EXPECT_GT(chi, 63 - 5 * std::sqrt(2 * 63.0));
  }
}

TEST(TrainingRows, ReadEveryWindowOnceAnEpoch) {
  constexpr int64_t T = 7;
  const TrainingRows batches(counting(1000), T, /*seed=*/1);
  ASSERT_EQ(batches.rows(), 1000 / T - 1);
  std::set<int64_t> phases;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::set<int64_t> begins;
    for (int64_t i = 0; i < batches.rows(); ++i) {
      const TokenBatch row = row_of(batches, epoch * batches.rows() + i);
      begins.insert(row.tokens[0]);
      for (size_t t = 0; t < T; ++t) {
        ASSERT_EQ(row.tokens[t], row.tokens[0] + static_cast<int32_t>(t));
        ASSERT_EQ(row.targets[t], row.tokens[t] + 1);
      }
    }
    ASSERT_EQ(static_cast<int64_t>(begins.size()), batches.rows());
    EXPECT_EQ(*begins.rbegin() - *begins.begin(), T * (batches.rows() - 1));
    phases.insert(*begins.begin());
  }
  EXPECT_GT(phases.size(), 1u);
}

TEST(TrainingRows, ReadEveryTokenOverTheEpochs) {
  constexpr int64_t T = 8;
  for (int64_t n : {10, 11, 15, 16, 17, 23, 24, 31, 40}) {
    const TrainingRows batches(counting(n), T, /*seed=*/2);
    std::set<int32_t> read;
    for (int64_t i = 0; i < 300 * batches.rows(); ++i) {
      const TokenBatch row = row_of(batches, i);
      read.insert(row.tokens.begin(), row.tokens.end());
      read.insert(row.targets.begin(), row.targets.end());
    }
    EXPECT_EQ(static_cast<int64_t>(read.size()), n);
  }
}

TEST(TrainingRows, DependOnSeedAndIndexOnly) {
  constexpr int64_t T = 16;
  const TrainingRows a(counting(5000), T, 1), b(counting(5000), T, 1), other(counting(5000), T, 2);
  std::vector<std::vector<int32_t>> forward, backward;
  for (int64_t i = 0; i < 700; ++i) forward.push_back(row_of(a, i).tokens);
  for (int64_t i = 700; i-- > 0;) backward.push_back(row_of(b, i).tokens);
  std::ranges::reverse(backward);
  EXPECT_EQ(forward, backward);
  int same = 0, ordered = 0, repeated = 0;
  const int64_t epoch = a.rows();
  for (int64_t i = 0; i < epoch; ++i) {
    same += a.begin(i) / T == other.begin(i) / T;
    ordered += a.begin(i + 1) - a.begin(i) == T;
    repeated += a.begin(i) / T == a.begin(i + epoch) / T;
  }
  EXPECT_LT(same, 10);
  EXPECT_LT(ordered, 10);
  EXPECT_LT(repeated, 10);
}

// A different order would change every resumed run.
TEST(TrainingRows, HaveTheSameOrderInEveryVersion) {
  const TrainingRows batches(counting(100000), 64, /*seed=*/1337);
  std::vector<int64_t> begins;
  for (int64_t i : {0, 1, 2, 1560, 1561, 1000000}) begins.push_back(batches.begin(i));
  EXPECT_EQ(begins, (std::vector<int64_t>{65504, 65312, 73184, 57376, 70620, 27082}));
}

TEST(TrainingRows, RefuseTooLittleDataAndSayWhatWouldFit) {
  EXPECT_NO_THROW(TrainingRows(counting(66), 64, 1));
  expect_error(ErrorKind::file, {"memory", "65 tokens", "63 or less"},
               [] { TrainingRows(counting(65), 64, 1); });
  EXPECT_NO_THROW(TrainingRows(counting(65), 63, 1));
  expect_error(ErrorKind::file, {"2 tokens", "at least 3"},
               [] { TrainingRows(counting(2), 1, 1); });
  expect_error(ErrorKind::file, {"9 tokens", "7 or less"},
               [] { TrainingRows(counting(9), INT64_MAX, 1); });
}

TEST(TrainingRows, RefuseRowsThatCannotBe) {
  expect_error(ErrorKind::invalid, {"at least 1"}, [] { TrainingRows(counting(9), 0, 1); });
  expect_error(ErrorKind::invalid, {"-3"}, [] { TrainingRows(counting(9), -3, 1); });
  const TrainingRows batches(counting(9), 3, 1);
  TokenBatch batch;
  expect_error(ErrorKind::invalid, {"row -1"}, [&] { batches.fill({-1, 1}, batch); });
  expect_error(ErrorKind::invalid, {"rows 2 to 1"}, [&] { batches.fill({2, 1}, batch); });
}

// Rows 0 to 8 are an epoch of 9: a batch may have more rows than that.
TEST(TrainingRows, FillABatchWithTheSameRowsAsOneByOne) {
  constexpr int64_t T = 10;
  const TrainingRows batches(counting(100), T, /*seed=*/4);
  ASSERT_EQ(batches.rows(), 9);
  for (const Range rows : {Range{0, 1}, Range{3, 7}, Range{5, 45}, Range{7, 7}}) {
    TokenBatch wanted{.T = T}, found;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const TokenBatch row = row_of(batches, i);
      wanted.tokens.insert(wanted.tokens.end(), row.tokens.begin(), row.tokens.end());
      wanted.targets.insert(wanted.targets.end(), row.targets.begin(), row.targets.end());
    }
    batches.fill(rows, found);
    EXPECT_EQ(found.T, T);
    EXPECT_EQ(found.rows(), rows.size());
    EXPECT_EQ(found.valid, rows.size() * T);
    EXPECT_EQ(found.tokens, wanted.tokens);
    EXPECT_EQ(found.targets, wanted.targets);
  }
}

// The last target of a window is the first token of the next.
TEST(TrainingRows, ReadEachTokenOfARowOnce) {
  constexpr int64_t T = 6, n = 60;
  const auto tokens = counting(n);
  const TrainingRows batches(tokens, T, /*seed=*/5);
  const int64_t rows = batches.rows();
  TokenBatch batch;
  batches.fill({0, rows}, batch);
  const int32_t first = std::ranges::min(batch.tokens), last = std::ranges::max(batch.targets);
  EXPECT_EQ(last - first, rows * T);
  for (int32_t i = 0; i < n; ++i) {
    const bool in_two_rows = i > first && i < last && (i - first) % T == 0;
    ASSERT_EQ(tokens->reads[static_cast<size_t>(i)], in_two_rows ? 2 : i >= first && i <= last);
  }
}

TEST(TrainingRows, FillTheMemoryOfTheStepBefore) {
  const TrainingRows batches(counting(100), /*T=*/10, /*seed=*/4);
  TokenBatch batch;
  batches.fill({0, 6}, batch);
  const int32_t *tokens = batch.tokens.data(), *targets = batch.targets.data();
  for (int64_t step = 1; step < 4; ++step) {
    batches.fill({6 * step, 6 * (step + 1)}, batch);
    EXPECT_EQ(batch.tokens.data(), tokens);
    EXPECT_EQ(batch.targets.data(), targets);
    EXPECT_EQ(batch.valid, 60);
  }
}

TEST(ValidationRows, CountEveryTargetOnce) {
  for (int64_t T : {1, 5, 8}) {
    for (int64_t n = 2; n < 40; ++n) {
      const ValidationRows validation(counting(n), T);
      std::vector<int32_t> counted;
      for (int64_t i = 0; i < validation.rows() + 2; ++i) {
        const TokenBatch row = row_of(validation, i);
        int64_t valid = 0;
        for (size_t t = 0; t < row.tokens.size(); ++t) {
          if (row.targets[t] == ignored_target) continue;
          counted.push_back(row.targets[t]);
          ++valid;
          ASSERT_EQ(row.tokens[t], row.targets[t] - 1);
        }
        ASSERT_EQ(row.valid, valid);
        ASSERT_GE(std::ranges::min(row.tokens), 0);
      }
      std::vector<int32_t> expected(static_cast<size_t>(n - 1));
      std::iota(expected.begin(), expected.end(), 1);
      ASSERT_EQ(counted, expected);
      ASSERT_EQ(targets_of(validation), n - 1);
      ASSERT_EQ(validation.rows(), (n - 1) / T + ((n - 1) % T != 0));
    }
  }
}

// Rows of 8 of 20 targets: the third has 4, and others only fill up the batch.
TEST(ValidationRows, PadTheLastBatchAndCountTheTargetsThatAreLeft) {
  const auto tokens = counting(21);
  const ValidationRows validation(tokens, /*T=*/8);
  TokenBatch batch;
  validation.fill({0, 2}, batch);
  EXPECT_EQ(batch.valid, 16);
  validation.fill({2, 4}, batch);
  EXPECT_EQ(batch.valid, 4);
  const std::vector<int32_t> targets{17, 18, 19, 20, -100, -100, -100, -100};
  EXPECT_EQ(std::vector(batch.targets.begin(), batch.targets.begin() + 8), targets);
  EXPECT_EQ(std::vector(batch.targets.begin() + 8, batch.targets.end()),
            std::vector<int32_t>(8, ignored_target));
  EXPECT_EQ(batch.tokens,
            (std::vector<int32_t>{16, 17, 18, 19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  for (size_t i = 0; i < 21; ++i) EXPECT_EQ(tokens->reads[i], i == 8 || i == 16 ? 2 : 1);
  validation.fill({0, 9}, batch);
  EXPECT_EQ(batch.rows(), 9);
  EXPECT_EQ(batch.valid, targets_of(validation));
}

TEST(ValidationRows, AreSpreadEvenlyWhereTheyAreLimited) {
  const ValidationRows few(counting(1003), /*T=*/10, /*limit=*/7);
  ASSERT_EQ(few.rows(), 7);
  EXPECT_EQ(targets_of(few), 70);
  for (int64_t i = 0; i < 7; ++i) {
    const TokenBatch row = row_of(few, i);
    EXPECT_EQ(row.tokens[0] / 10, i * 101 / 7);
    EXPECT_EQ(row.tokens[0] % 10, 0);
    EXPECT_EQ(row.targets[9], row.tokens[0] + 10);
  }
  EXPECT_EQ(ValidationRows(counting(1003), 10, 500).rows(), 101);
}

TEST(ValidationRows, RefuseTooLittleDataAndRowsThatCannotBe) {
  EXPECT_NO_THROW(ValidationRows(counting(2), 8));
  EXPECT_EQ(targets_of(ValidationRows(counting(9), INT64_MAX)), 8);
  expect_error(ErrorKind::file, {"has 1 tokens", "at least 2"},
               [] { ValidationRows(counting(1), 8); });
  expect_error(ErrorKind::invalid, {"at least 1"}, [] { ValidationRows(counting(9), 0); });
  expect_error(ErrorKind::invalid, {"rows", "-1"}, [] { ValidationRows(counting(9), 3, -1); });
}

}  // namespace
}  // namespace spool
