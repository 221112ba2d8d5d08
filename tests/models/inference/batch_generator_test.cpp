// Texts that are continued together, compared with each alone.

#include "spool/models/inference/batch_generator.h"

#include <optional>

#include "spool/models/families/llama_config.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/inference/generator_testing.h"

namespace spool::testing {
namespace {

LlamaConfig llama() {
  return {.layers = 2,
          .channels = 24,
          .inner = 40,
          .context = 200,
          .vocabulary = 50,
          .heads = {.query = 4, .key = 2},
          .head = 8};
}
Gpt2Config gpt2() {
  Gpt2Config config = short_context;
  config.context = 200;
  return config;
}

std::shared_ptr<Model> large_weights(const ModelConfig& config, DType dtype, Stream& stream) {
  auto model = config.make(dtype, stream);
  uint64_t seed = 3;
  for (Parameter* p : model->parameters()) {
    const Tensor values = normal(p->data.shape(), dtype, stream, ++seed, 0.4);
    launch(Cast{.out = p->data, .in = values}, stream);
  }
  model->clear_padding();
  return model;
}

std::vector<BatchGenerator::Row> prompts(const std::vector<int64_t>& lengths) {
  std::vector<BatchGenerator::Row> rows;
  for (const int64_t n : lengths) {
    rows.push_back({.tokens = some_text(n, static_cast<uint64_t>(n)), .random = Random(5)});
  }
  return rows;
}

// Various lengths, one of them far above the others and longer than a pass.
const std::vector<std::vector<int64_t>> lengths{
    {1}, {5, 5}, {1, 2, 3}, {7, 30, 4, 1, 19}, {140, 3, 1, 2, 9, 8, 33, 2, 1}};

TEST(BatchGenerator, ContinuesEachTextAsIfItWereAlone) {
  CpuStream stream(generator_budget, 2);
  for (const ModelConfig& config : {ModelConfig(llama()), ModelConfig(gpt2())}) {
    const auto model = large_weights(config, DType::f32, stream);
    for (const auto& all : lengths) {
      for (const double temperature : {0.0, 1.0}) {
        // Some tokens stop a text, so rows end at different times.
        const SamplingOptions options{
            .temperature = temperature, .repetition_penalty = 1.1, .stop_tokens = {4, 7}};
        std::vector<BatchGenerator::Row> rows = prompts(all);
        BatchGenerator(*model, stream, std::ssize(rows), 200).extend(rows, 40, options);
        for (size_t i = 0; i < rows.size(); ++i) {
          BatchGenerator::Row alone = prompts(all)[i];
          Generator(*model, stream).extend(alone.tokens, 40, options, alone.random);
          EXPECT_EQ(rows[i].tokens, alone.tokens) << config.family() << ", text " << i;
        }
      }
    }
  }
}

TEST(BatchGenerator, ReportsEachTokenUntilItsTextEnds) {
  CpuStream stream(generator_budget, 2);
  const auto model = large_weights(llama(), DType::f32, stream);
  std::vector<BatchGenerator::Row> rows = prompts({3, 9, 1, 4, 6});
  const std::vector<size_t> max{5, 1, 8, 2, 8};
  std::vector<std::vector<int32_t>> told(rows.size());
  BatchGenerator generator(*model, stream, 5, 60);
  generator.extend(rows, 8, {.temperature = 1}, [&](size_t i, int32_t token) {
    told[i].push_back(token);
    return told[i].size() < max[i];
  });
  const auto before = prompts({3, 9, 1, 4, 6});
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(told[i].size(), max[i]);
    std::vector<int32_t> whole = before[i].tokens;
    whole.insert(whole.end(), told[i].begin(), told[i].end());
    EXPECT_EQ(rows[i].tokens, whole);
  }
  // First more rows, then fewer than there is room for.
  std::vector<BatchGenerator::Row> fewer = prompts({2, 1}), same = prompts({2, 1});
  generator.extend(fewer, 6, {.temperature = 0});
  BatchGenerator(*model, stream, 2, 60).extend(same, 6, {.temperature = 0});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(fewer[i].tokens, same[i].tokens);
}

TEST(BatchGenerator, ReadsTheParametersOnceForAllTexts) {
  CpuStream stream(generator_budget, 2);
  const auto model = large_weights(llama(), DType::f32, stream);
  const auto launches = [&](size_t count) {
    std::vector<BatchGenerator::Row> rows = prompts(std::vector<int64_t>(count, 4));
    BatchGenerator generator(*model, stream, std::ssize(rows), 60);
    const uint64_t before = stream.launches();
    generator.extend(rows, 20, {.temperature = 0});
    return stream.launches() - before;
  };
  EXPECT_EQ(launches(8), launches(2));
  EXPECT_LT(launches(1), launches(2)) << "the last token of one text is not copied";
}

TEST(BatchGenerator, HasTheForetoldPeak) {
  const std::vector<int64_t> some{7, 30, 4, 1, 19, 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto foretold = rehearse({.architecture = this_processor(2)}, [&](MetaStream& meta) {
                            const auto model = ModelConfig(llama()).make(dtype, meta);
                            BatchGenerator(*model, meta, 6, 70).rehearse(6, 30, 40);
                          }).memory.peak;
    CpuStream stream(foretold, 2);
    const auto model = ModelConfig(llama()).make(dtype, stream);
    model->initialise(1);
    std::vector<BatchGenerator::Row> rows = prompts(some);
    BatchGenerator(*model, stream, 6, 70).extend(rows, 40, {.temperature = 0, .stop_tokens = {3}});
    EXPECT_EQ(stream.memory().peak, foretold) << name(dtype);
  }
}

TEST(BatchGenerator, RefusesWhatHasNoRoom) {
  CpuStream stream(generator_budget, 1);
  const auto model = large_weights(llama(), DType::f32, stream);
  expect_error(ErrorKind::invalid, {"201", "200"}, [&] { BatchGenerator(*model, stream, 1, 201); });
  BatchGenerator generator(*model, stream, 2, 10);
  auto three = prompts({1, 1, 1}), empty = prompts({1, 0}), wrong = prompts({1, 2});
  wrong[1].tokens[1] = 50;
  expect_error(ErrorKind::invalid, {"3 texts", "room for 2"},
               [&] { generator.extend(three, 1, {}); });
  expect_error(ErrorKind::invalid, {"at least one token"}, [&] { generator.extend(empty, 1, {}); });
  expect_error(ErrorKind::invalid, {"50", "not in [0, 50)"},
               [&] { generator.extend(wrong, 1, {}); });
  auto longer = prompts({8, 1});
  expect_error(ErrorKind::invalid, {"cache of 10"}, [&] { generator.extend(longer, 4, {}); });
}

}  // namespace
}  // namespace spool::testing
