#include "spool/models/training/run/samples.h"

#include <spdlog/fmt/fmt.h>

#include "spool/models/inference/generator.h"
#include "spool/models/tokenizers/utf8.h"

namespace spool {

void Samples::write(int64_t done) const {
  if (!run.options.sample) return;
  const LongWork writing(*run.listeners, "writing a sample");
  const RunSample& sample = run.sample;
  const SampleLength length = sample.length;
  std::vector<int32_t> tokens = sample.prompt;
  Random random(run.options.training.seed, static_cast<uint64_t>(done));
  Generator(run.trainer->model(), *run.stream, length.prompt + length.drawn)
      .extend(tokens, length.drawn,
              {.vocabulary = run.tokenizer->vocabulary(), .stop_tokens = sample.stop_tokens},
              random);
  const std::string message = sample.message.empty() ? "" : fmt::format("> {}\n", sample.message);
  const std::string text = run.tokenizer->decode(std::span(tokens).subspan(sample.prompt.size()));
  run.listeners->say(fmt::format("--- sample after step {}\n{}{}\n---", done, message,
                                 from_character_to_character(text)));
}

}  // namespace spool
