// Text written on a GPU, whose tokens are replayed graphs: the bits of passes that are launched
// kernel by kernel, three launches a token, the foretold peak.

#include "spool/models/inference/token_pass.h"

#include "spool/models/families/llama_config.h"
#include "spool/models/inference/batch_generator.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/rehearsal.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/inference/generator_testing.h"
#include "tests/runtime/environment.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/launches.h"
#endif

namespace spool::testing {
namespace {

class CudaTokenPass : public OnCuda {};

constexpr int64_t context = 150;  // rows of a cache: graphs of 64, of 128 and of all

std::vector<ModelConfig> configs_of_writers() {
  Gpt2Config gpt2 = short_context;
  gpt2.context = context;
  return {gpt2, LlamaConfig{.layers = 2,
                            .channels = 24,
                            .inner = 40,
                            .context = context,
                            .vocabulary = 50,
                            .heads = {.query = 4, .key = 2},
                            .head = 8}};
}

std::shared_ptr<Model> writer(const ModelConfig& config, DType type, Stream& stream) {
  auto model = config.make(type, stream);
  uint64_t seed = 3;
  for (Parameter* p : model->parameters()) {
    launch(Cast{.out = p->data, .in = normal(p->data.shape(), type, stream, ++seed, 0.4)}, stream);
  }
  model->clear_padding();
  return model;
}

// The logits after each token of a text from `prompt` on, by passes that know on the host where
// they are in the cache.
Numbers logits_by_kernels(Model& model, std::span<const int32_t> text, int64_t prompt,
                          Stream& stream) {
  KeyValueCache cache = model.make_cache(1, context);
  Numbers all;
  for (int64_t at = 0; at < std::ssize(text);) {
    const int64_t n = at == 0 ? prompt : 1;
    const auto some = text.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
    Tape tape(stream, {.recording = false, .training = false});
    const Var ids = tape.input(make_tensor<int32_t>({1, n}, some, stream));
    const Tensor hidden = model.hidden(ids, cache).tensor();
    const Tensor row = hidden.reshape({n, model.shape().channels}).slice({n - 1, n});
    append(all, model.logits(tape.input(row)).tensor());
    at += n;
  }
  return all;
}

Numbers logits_of_generator(Model& model, std::span<const int32_t> text, int64_t prompt,
                            Stream& stream) {
  Generator generator(model, stream);
  Numbers all;
  for (int64_t at = 0; at < std::ssize(text);) {
    const int64_t n = at == 0 ? prompt : 1;
    generator.read(text.subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
    append(all, generator.logits());
    at += n;
  }
  return all;
}

// From one token on, and across the rows of each graph.
TEST_F(CudaTokenPass, HasTheBitsOfAPassWithoutAGraph) {
  for (const ModelConfig& config : configs_of_writers()) {
    for (const DType type : cuda_types) {
      for (const int64_t prompt : {1, 32}) {
        if (!has_every_case() && (prompt == 1) != (type == DType::f32)) continue;
        const std::vector<int32_t> text = some_text(type == DType::f32 ? context : 70);
        const auto stream = cuda_stream();
        const auto model = writer(config, type, *stream);
        EXPECT_EQ(logits_of_generator(*model, text, prompt, *stream),
                  logits_by_kernels(*model, text, prompt, *stream))
            << config.family() << ", " << name(type) << ", a prompt of " << prompt;
      }
    }
  }
}

// A conversation: texts are read and written by turns, beyond the context and anew.
std::vector<int32_t> conversation(const ModelConfig& config, Stream& stream, int64_t tokens) {
  const auto model = writer(config, DType::f32, stream);
  Generator generator(*model, stream, tokens);
  Random random(7);
  std::vector<int32_t> drawn;
  for (const int64_t turn : {3, 20, 1, 40, 0, 5, 33}) {
    if (turn == 0) generator.begin();
    generator.read(some_text(std::max<int64_t>(turn, 1), static_cast<uint64_t>(turn)));
    for (int i = 0; i < 12; ++i) drawn.push_back(generator.next({.temperature = 1}, random));
  }
  return drawn;
}

// A trace shows kernels, and SPOOL_CUDA_SYNC waits for each: neither captures.
TEST_F(CudaTokenPass, AConversationIsTheSameWithoutGraphs) {
  for (const ModelConfig& config : configs_of_writers()) {
    const auto stream = cuda_stream();
    const std::vector<int32_t> written = conversation(config, *stream, 90);
    const bool is_first = config.family() == configs_of_writers().front().family();
    if (has_every_case() || is_first) {
      const auto traced_stream = cuda_stream();
      const Traced traced(*traced_stream, std::make_shared<Trace>());
      EXPECT_EQ(conversation(config, *traced_stream, 90), written) << config.family();
    }
    if (!has_every_case() && is_first) continue;
    const EnvironmentVariable waits("SPOOL_CUDA_SYNC", "1");
    EXPECT_EQ(conversation(config, *cuda_stream(), 90), written) << config.family();
  }
}

std::vector<BatchGenerator::Row> rows_to_continue() {
  std::vector<BatchGenerator::Row> rows;
  for (const int64_t n : {7, 30, 1, 33, 4, 2}) {
    rows.push_back({.tokens = some_text(n, static_cast<uint64_t>(n)), .random = Random(5)});
  }
  return rows;
}

std::vector<std::vector<int32_t>> continued(const ModelConfig& config, Stream& stream) {
  const auto model = writer(config, DType::f32, stream);
  BatchGenerator generator(*model, stream, 6, 90);
  std::vector<std::vector<int32_t>> all;
  for (int batch = 0; batch < 2; ++batch) {  // the second begins with the graphs of the first
    std::vector<BatchGenerator::Row> rows = rows_to_continue();
    if (batch > 0) rows.pop_back();
    generator.extend(rows, 40, {.temperature = 1, .stop_tokens = {4, 7}});
    for (const BatchGenerator::Row& row : rows) all.push_back(row.tokens);
  }
  return all;
}

TEST_F(CudaTokenPass, TextsOfABatchAreTheSameWithoutGraphs) {
  for (const ModelConfig& config : configs_of_writers()) {
    if (!has_every_case() && config.family() == configs_of_writers().front().family()) continue;
    const auto stream = cuda_stream();
    const auto all = continued(config, *stream);
    const auto traced_stream = cuda_stream();
    const Traced traced(*traced_stream, std::make_shared<Trace>());
    EXPECT_EQ(continued(config, *traced_stream), all) << config.family();
  }
}

// Kernels, copies and graphs that a stream enqueued; only the emulated device tells.
class CountedLaunches {
 public:
  explicit CountedLaunches(Stream& stream) : stream_(stream), before_(now()) {}
  // Since the last call.
  uint64_t since() {
    const uint64_t before = std::exchange(before_, now());
    return before_ - before;
  }
  void expect_a_graph() {
#if SPOOL_CUDA_EMULATED
    EXPECT_EQ(since(), 3u);
#endif
  }

 private:
  uint64_t now() const {
#if SPOOL_CUDA_EMULATED
    const auto& cuda = dynamic_cast<const CudaStream&>(stream_);
    return emulator::enqueued(static_cast<cudaStream_t>(cuda.native()));
#else
    return stream_.launches();
#endif
  }
  Stream& stream_;
  uint64_t before_;
};

TEST_F(CudaTokenPass, ATokenIsAtMostThreeLaunches) {
  const auto stream = cuda_stream();
  for (const ModelConfig& config : configs_of_writers()) {
    if (!has_every_case() && config.family() == configs_of_writers().front().family()) continue;
    const auto model = writer(config, DType::bf16, *stream);
    Generator generator(*model, *stream);
    generator.read(some_text(50));
    Random random(1);
    CountedLaunches launches(*stream);
    generator.next({}, random);
    EXPECT_GT(launches.since(), 20u) << "the prompt";
    for (int token = 2; token < 100; ++token) {
      const uint64_t kernels = stream->launches();
      generator.next({}, random);
      launches.expect_a_graph();
      // The token needs 49 + `token` rows: captured are graphs of 64, of 128 and of all.
      const bool is_captured = token == 2 || token == 65 - 49 || token == 129 - 49;
      EXPECT_EQ(stream->launches() > kernels, is_captured) << token;
    }
  }
}

TEST_F(CudaTokenPass, ABatchAlsoHasThreeLaunchesForATokenOfEachText) {
  const auto stream = cuda_stream();
  const auto model = writer(configs_of_writers()[1], DType::f32, *stream);
  BatchGenerator generator(*model, *stream, 6, 90);
  std::vector<BatchGenerator::Row> rows = rows_to_continue();
  CountedLaunches launches(*stream);
  int tokens = 0;
  generator.extend(rows, 20, {}, [&](size_t text, int32_t) {
    if (text != 0) return true;
    if (++tokens == 1) {
      EXPECT_GT(launches.since(), 20u) << "the prompts";
    } else {
      launches.expect_a_graph();
    }
    return true;
  });
  EXPECT_EQ(tokens, 20);
}

// What a graph writes on its way must not be memory that somebody took since it was captured.
TEST_F(CudaTokenPass, LeavesMemoryTakenBetweenTokensAlone) {
  const auto stream = cuda_stream();
  const auto model = writer(configs_of_writers()[0], DType::f32, *stream);
  const std::vector<int32_t> text = some_text(20);
  const Numbers wanted = logits_by_kernels(*model, text, 4, *stream);
  Generator generator(*model, *stream);
  std::vector<Tensor> taken;
  Numbers found;
  for (int64_t at = 0; at < std::ssize(text);) {
    const int64_t n = at == 0 ? 4 : 1;
    generator.read(std::span(text).subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
    append(found, generator.logits());
    at += n;
    if (at % 5 != 0) continue;
    taken.push_back(unset({5000}, DType::f32, *stream));
    launch(Fill{.out = taken.back(), .value = static_cast<float>(at)}, *stream);
  }
  EXPECT_EQ(found, wanted);
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(values(taken[i]), Numbers(5000, static_cast<double>(5 * (i + 1))));
  }
}

TEST_F(CudaTokenPass, HasTheForetoldPeak) {
  const Machine machine{.architecture = cuda_stream(Arena::granule)->architecture()};
  for (const ModelConfig& config : configs_of_writers()) {
    using Length = std::pair<int64_t, int64_t>;
    for (const Length& length : {Length{1, 1}, {40, 1}, {17, 70}}) {
      const int64_t prompt = length.first, count = length.second;
      const size_t foretold = rehearse(machine, [&](MetaStream& meta) {
                                const auto model = config.make(DType::bf16, meta);
                                Generator(*model, meta).rehearse(prompt, count);
                              }).memory.peak;
      const auto stream = cuda_stream(foretold);
      const auto model = config.make(DType::bf16, *stream);
      model->initialise(1);
      Random random(1);
      std::vector<int32_t> text = some_text(prompt);
      Generator(*model, *stream).extend(text, count, {}, random);
      EXPECT_EQ(stream->memory().peak, foretold) << config.family() << ", " << prompt;
    }
    const size_t foretold = rehearse(machine, [&](MetaStream& meta) {
                              const auto model = config.make(DType::f32, meta);
                              BatchGenerator(*model, meta, 6, 90).rehearse(6, 33, 40);
                            }).memory.peak;
    const auto stream = cuda_stream(foretold);
    const auto model = config.make(DType::f32, *stream);
    model->initialise(1);
    std::vector<BatchGenerator::Row> rows = rows_to_continue();
    BatchGenerator(*model, *stream, 6, 90).extend(rows, 40, {.stop_tokens = {3, 9}});
    EXPECT_EQ(stream->memory().peak, foretold) << config.family() << ", a batch";
  }
}

}  // namespace
}  // namespace spool::testing
