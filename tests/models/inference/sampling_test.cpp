// runs: numbers
// Draws of tokens against the distribution that they come from.

#include "spool/models/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Sampling, DrawsAsOftenAsTheLogitsSay) {
  const std::vector<float> logits{0, 3, -1, 3.5f};
  Random random(1);
  EXPECT_EQ(sample(logits, {.temperature = 0}, random), 3);
  std::vector<int> count(4);
  for (int i = 0; i < 4000; ++i)
    ++count[static_cast<size_t>(sample(logits, {.temperature = 1}, random))];
  EXPECT_NEAR(count[3] / double(count[1]), std::exp(0.5), 0.2);
  EXPECT_GT(count[2], 0);
  for (int i = 0; i < 200; ++i) {
    const int32_t token = sample(logits, {.temperature = 1, .top_k = 2}, random);
    EXPECT_TRUE(token == 1 || token == 3);
  }
}

std::vector<float> some_logits(size_t count) {
  Random random(7);
  std::vector<float> all(count);
  for (float& x : all) x = 3 * random.normal();
  return all;
}

// The drawn token is the one whose interval of the summed weights contains the random number.  The
// sizes need several blocks of logits and a partial last one.
TEST(Sampling, IsTheInverseOfTheDistribution) {
  for (const size_t V : {1, 3, 256, 257, 1000}) {
    const std::vector<float> logits = some_logits(V);
    for (const double temperature : {0.3, 1.0, 2.5}) {
      std::vector<double> sums{0};
      for (const float x : logits) sums.push_back(sums.back() + std::exp(x / temperature));
      Random random(3), same(3);
      for (int i = 0; i < 500; ++i) {
        const auto token =
            static_cast<size_t>(sample(logits, {.temperature = temperature}, random));
        const double drawn = same.uniform() * sums.back(), slack = 1e-5 * sums.back();
        ASSERT_LT(token, V);
        EXPECT_GE(drawn, sums[token] - slack);
        EXPECT_LE(drawn, sums[token + 1] + slack);
      }
    }
  }
}

TEST(Sampling, DrawsAmongTheTopK) {
  const std::vector<float> logits = some_logits(1000);
  std::vector<float> sorted = logits;
  std::ranges::sort(sorted, std::greater());
  for (const int64_t k : {1, 5, 40, 999, 1000, 2000}) {
    const float smallest = sorted[static_cast<size_t>(std::min<int64_t>(k, 1000) - 1)];
    Random random(2);
    std::set<int32_t> drawn;
    for (int i = 0; i < 2000; ++i) {
      const int32_t token = sample(logits, {.temperature = 5, .top_k = k}, random);
      EXPECT_GE(logits[static_cast<size_t>(token)], smallest);
      drawn.insert(token);
    }
    EXPECT_EQ(drawn.size() <= 5, k <= 5);
    if (k <= 5) {
      EXPECT_EQ(static_cast<int64_t>(drawn.size()), k);
    }
  }
}

TEST(Sampling, PrefersTheFirstOfEqualLogits) {
  const std::vector<float> logits{-1, 2, 2, 0, 2, 2};
  Random random(1);
  EXPECT_EQ(sample(logits, {.temperature = 0}, random), 1);
  std::set<int32_t> drawn;
  for (int i = 0; i < 100; ++i) {
    drawn.insert(sample(logits, {.temperature = 1, .top_k = 2}, random));
  }
  EXPECT_EQ(drawn, (std::set<int32_t>{1, 2}));
}

TEST(Sampling, WorksAtAnyTemperature) {
  const std::vector<float> logits{-1, 3, 2.999f};
  Random random(1);
  std::set<int32_t> drawn;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sample(logits, {.temperature = 1e-300}, random), 1);
    drawn.insert(sample(logits, {.temperature = 1e300}, random));
  }
  EXPECT_EQ(drawn.size(), 3u);
}

// The tokens that can be drawn.
std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingOptions& options,
                        const std::vector<int32_t>& text = {}) {
  Random random(1);
  std::set<int32_t> all;
  for (int i = 0; i < 3000; ++i) all.insert(sample(logits, options, random, text));
  return all;
}

TEST(Sampling, TopPKeepsTheFewestTokensThatHaveTheShare) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits{std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
  using Tokens = std::set<int32_t>;
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_p = 0.01}), (Tokens{1}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_p = 0.39}), (Tokens{1}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_p = 0.41}), (Tokens{1, 3}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_p = 0.71}), (Tokens{0, 1, 3}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_p = 0.99}), (Tokens{0, 1, 2, 3}));
  // Of the top 2, whose probabilities become 4/7 and 3/7.
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}), (Tokens{1}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}), (Tokens{1, 3}));
  // Of equal tokens, the first.
  EXPECT_EQ(drawn({1, 1, 1, 1}, {.temperature = 1, .top_p = 0.5}), (Tokens{0, 1}));
}

TEST(Sampling, TopPOfManyEquallyProbableTokens) {
  const std::vector<float> logits(5000, 0.5f);
  Random random(2);
  std::set<int32_t> all;
  for (int i = 0; i < 300; ++i) {
    all.insert(sample(logits, {.temperature = 1, .top_p = 0.9}, random));
  }
  EXPECT_LT(*all.rbegin(), 4500);
  EXPECT_GT(*all.rbegin(), 4000);
}

TEST(Sampling, MinPKeepsTokensNearlyAsProbableAsTheFirst) {
  const std::vector<float> logits{std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
  using Tokens = std::set<int32_t>;
  EXPECT_EQ(drawn(logits, {.temperature = 1, .min_p = 1}), (Tokens{1}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .min_p = 0.7}), (Tokens{1, 3}));
  EXPECT_EQ(drawn(logits, {.temperature = 1, .min_p = 0.2}), (Tokens{0, 1, 2, 3}));
  // Temperature comes first: (0.3 / 0.4)^2 is below 0.7.
  EXPECT_EQ(drawn(logits, {.temperature = 0.5, .min_p = 0.7}), (Tokens{1}));
}

TEST(Sampling, PenaltyMakesTokensOfTheTextLessProbable) {
  const std::vector<float> logits{2, 1.5f, -1, -1.2f};
  Random random(1);
  const auto likeliest = [&](double penalty, const std::vector<int32_t>& text) {
    return sample(logits, {.temperature = 0, .repetition_penalty = penalty}, random, text);
  };
  EXPECT_EQ(likeliest(1.5, {}), 0);
  EXPECT_EQ(likeliest(1, {0, 0}), 0);
  EXPECT_EQ(likeliest(1.3, {0}), 0);        // 2 / 1.3 = 1.54
  EXPECT_EQ(likeliest(1.3, {0, 0, 0}), 0);  // penalised once per token
  EXPECT_EQ(likeliest(1.4, {0}), 1);        // 1.43
  // A negative logit becomes lower; tokens beyond the vocabulary are passed over.
  const std::vector<float> negative{-1, -1.2f};
  EXPECT_EQ(sample(negative, {.temperature = 0, .repetition_penalty = 1.3}, random,
                   std::vector<int32_t>{0, 7}),
            1);
}

TEST(Sampling, RefusesNoLogitsAndThoseThatAreNotFinite) {
  Random random(1);
  for (const double temperature : {0.0, 1.0}) {
    const auto draw = [&](const std::vector<float>& logits) {
      sample(logits, {.temperature = temperature}, random);
    };
    EXPECT_NO_THROW(draw({1, 2}));
    expect_error(ErrorKind::invalid, {"no logits"}, [&] { draw({}); });
    for (const float bad : {NAN, INFINITY, -INFINITY})
      expect_error(ErrorKind::numeric, {"not finite"}, [&] { draw({1, bad, 2}); });
  }
}

}  // namespace
}  // namespace spool::testing
