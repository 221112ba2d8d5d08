// runs: threads
// Generation of texts: how tokens are read, drawn and shown.

#include "spool/models/inference/generator.h"
#include "spool/models/families/gpt2.h"

#include <algorithm>
#include <utility>

#include "spool/runtime/cpu/stream.h"
#include "tests/models/inference/generator_testing.h"

namespace spool::testing {
namespace {

TEST(Generator, HasTheSameLogitsForATextReadInAnyPieces) {
  CpuStream stream(generator_budget, 2);
  for (const DType type : {DType::f32, DType::bf16}) {
    Gpt2 model(short_context, type, stream);
    initialise_with_large_weights(model);
    Generator generator(model, stream);
    const std::vector<int32_t> text = some_text(90);
    for (const size_t piece : {1, 3, 17, 31}) {
      generator.begin();
      for (size_t done = 0; done < text.size(); done += piece) {
        const auto some = std::span(text).subspan(done, std::min(piece, text.size() - done));
        generator.read(some);
        const std::vector<int32_t> so_far(text.begin(),
                                          text.begin() + static_cast<int64_t>(done + some.size()));
        const Numbers logits = values(generator.logits());
        EXPECT_LE(difference(logits, whole_logits(model, so_far, stream)), forward_tolerance(type))
            << name(type) << ", " << so_far.size() << " tokens by " << piece;
        EXPECT_EQ(values(generator.logits()), logits);
      }
    }
  }
}

TEST(Generator, DrawsTheLikeliestTokenAtTemperatureZero) {
  CpuStream stream(generator_budget, 2);
  for (const Gpt2Config& config : {short_context, long_context}) {
    Gpt2 model(config, DType::f32, stream);
    initialise_with_large_weights(model);
    std::vector<int32_t> expected = some_text(3), text = expected;
    for (int i = 0; i < 80; ++i) {
      Numbers logits = whole_logits(model, expected, stream);
      logits.resize(static_cast<size_t>(config.vocabulary));
      expected.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    }
    Random random(1);
    Generator(model, stream).extend(text, 80, {.temperature = 0}, random);
    EXPECT_EQ(text, expected);
  }
}

TEST(Generator, HasTheSameBitsForAnyNumberOfThreads) {
  const Gpt2Config wide{
      .layers = 2, .heads = 3, .channels = 192, .context = 140, .vocabulary = 1100};
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto written = [&](int threads) {
      CpuStream stream(generator_budget, threads);
      Gpt2 model(wide, type, stream);
      initialise_with_large_weights(model);
      Generator generator(model, stream);
      Random random(4);
      std::vector<int32_t> text = some_text(131);
      generator.extend(text, 40, {.temperature = 1}, random);
      return std::pair(text, values(generator.logits()));
    };
    const auto one = written(1);
    for (const int threads : {2, 3}) EXPECT_EQ(written(threads), one) << name(type);
  }
}

TEST(Generator, RunsOnePassForTheTokensItHasNotRun) {
  CpuStream stream(generator_budget, 1);
  Gpt2 model(short_context, DType::f32, stream);
  initialise_with_large_weights(model);
  Generator generator(model, stream);
  Random random(1);
  generator.read(some_text(4));
  uint64_t before = stream.launches();
  const auto since = [&] { return stream.launches() - std::exchange(before, stream.launches()); };
  generator.next({}, random);
  const uint64_t one_pass = since();
  EXPECT_GT(one_pass, 0u);
  generator.next({}, random);
  EXPECT_EQ(since(), one_pass);
  generator.read(some_text(1));
  EXPECT_EQ(since(), 0u);
  generator.logits();  // reads the drawn token and the given one together
  EXPECT_EQ(since(), one_pass);
  generator.logits();
  EXPECT_EQ(since(), 0u);
}

TEST(Generator, ForgetsTheTextBefore) {
  CpuStream stream(generator_budget, 2);
  Gpt2 model(short_context, DType::f32, stream);
  initialise_with_large_weights(model);
  Generator used(model, stream), fresh(model, stream);
  used.read(some_text(50, 2));
  used.logits();
  used.begin();
  for (Generator* g : {&used, &fresh}) g->read(some_text(10));
  EXPECT_EQ(values(used.logits()), values(fresh.logits()));
  used.rehearse();
  used.read(some_text(10));
  EXPECT_EQ(values(used.logits()), values(fresh.logits()));
}

TEST(Generator, StopsAtTheEndOfTextOrWhenToldTo) {
  CpuStream stream(generator_budget, 2);
  Gpt2 model(short_context, DType::f32, stream);
  initialise_with_large_weights(model);
  Generator generator(model, stream);
  const auto written = [&](const SamplingOptions& options, size_t max_tokens) {
    std::vector<int32_t> text = some_text(3), shown;
    Random random(1);
    generator.extend(text, 20, options, random, [&](int32_t token) {
      shown.push_back(token);
      return shown.size() < max_tokens;
    });
    EXPECT_EQ(std::vector<int32_t>(text.begin() + 3, text.end()), shown);
    return shown;
  };
  const std::vector<int32_t> all = written({}, 100);
  ASSERT_EQ(all.size(), 20u);
  EXPECT_EQ(written({}, 7), std::vector<int32_t>(all.begin(), all.begin() + 7));
  const int32_t end = all[9];
  EXPECT_EQ(written({.stop_tokens = {end}}, 100),
            std::vector<int32_t>(all.begin(), std::ranges::find(all, end)));
  for (const int32_t token : written({.vocabulary = 4}, 100)) EXPECT_LT(token, 4);
}

TEST(Generator, RefusesNoTextAndTokensBeyondTheVocabulary) {
  CpuStream stream(generator_budget, 1);
  Gpt2 model(short_context, DType::f32, stream);
  initialise_with_large_weights(model);
  Generator generator(model, stream);
  expect_error(ErrorKind::invalid, {"at least one token"}, [&] { generator.logits(); });
  expect_error(ErrorKind::invalid, {"at least one token"}, [&] { generator.rehearse(0, 1); });
  for (const int32_t token : {-1, 50}) {
    const std::vector<int32_t> text{1, token};
    expect_error(ErrorKind::invalid, {"not in [0, 50)"}, [&] { generator.read(text); });
  }
  // No token of a refused text is kept.
  expect_error(ErrorKind::invalid, {"at least one token"}, [&] { generator.logits(); });
}

}  // namespace
}  // namespace spool::testing
