#include <cstdio>
#include <memory>

#include "spool/models/generator.h"
#include "spool/models/model_file.h"
#include "spool/models/spool.h"
#include "spool/models/tokenizer.h"
#include "spool/planner/rehearsal.h"

namespace spool {
namespace {

struct GenerateOptions {
  std::string model, prompt, device = "cpu";
  int64_t tokens = 200;
  SamplingOptions sampling = {};
  uint64_t seed = 1;
  int threads = 0;
};

size_t foretold_peak(const Gpt2Config& config, Stream& like, int64_t longest) {
  const Machine machine{.architecture = like.architecture()};
  const Report report = rehearse(machine, [&](MetaStream& stream) {
    Gpt2 model(config, DType::f32, stream);
    Generator(model, stream).rehearse(longest);
  });
  return report.memory.peak;
}

void generate(const GenerateOptions& o) {
  check(o.tokens > 0 && o.tokens < (1 << 30), "--tokens must be between 1 and 2^30, not ",
        o.tokens);
  check(o.sampling.temperature >= 0, "--temperature must be 0 or more, not ",
        o.sampling.temperature);
  check(o.sampling.top_k >= 0, "--top-k must be 0 or more, not ", o.sampling.top_k);
  const ModelFile file(o.model);
  const Gpt2Config config = file.config();
  const auto tokenizer = open_tokenizer(choose_tokenizer({}, file.directory()));

  std::vector<int32_t> tokens;
  const std::string prompt = o.prompt.empty() ? "\n" : o.prompt;
  tokenizer->encode(prompt, tokens);

  const Device device = parse_device(o.device);
  const auto probe = open_stream(device, Arena::granule, o.threads);
  const int64_t longest = static_cast<int64_t>(tokens.size()) + o.tokens;
  const auto stream = open_stream(device, foretold_peak(config, *probe, longest), o.threads);
  Gpt2 model(config, DType::f32, *stream);
  file.load(model);

  std::fwrite(o.prompt.data(), 1, o.prompt.size(), stdout);
  Random random(o.seed);
  SamplingOptions sampling = o.sampling;
  sampling.vocabulary = tokenizer->vocabulary();
  Generator(model, *stream).extend(tokens, o.tokens, sampling, random, [&](int32_t token) {
    const std::string text = tokenizer->decode({&token, 1});
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
}

}  // namespace

std::function<int()> add_generate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  GenerateOptions& o = *options;
  app.add_option("--model", o.model, "Directory of a run or of one of its checkpoints")->required();
  app.add_option("--prompt", o.prompt, "Text to continue");
  app.add_option("--tokens", o.tokens, "How many to write")->capture_default_str();
  app.add_option("--temperature", o.sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "Draw among so many of the likeliest; 0: all")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Of the draws")->capture_default_str();
  app.add_option("--device", o.device, "cpu")->capture_default_str();
  app.add_option("--threads", o.threads, "Threads of the cpu; 0: one per core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  return [options] {
    generate(*options);
    return 0;
  };
}

}  // namespace spool
