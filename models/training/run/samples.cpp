#include "spool/models/training/run/samples.h"

#include <spdlog/fmt/fmt.h>

#include "spool/models/inference/generator.h"
#include "spool/models/tokenizers/utf8.h"

namespace spool {

void Samples::write(int64_t done) const {
  if (!run_.options.sample) return;
  if (run_.writes()) {
    write_text(done);
  } else if (const ShardedModel* const shared = run_.trainer->shared()) {
    follow_reader(run_.trainer->model(), *run_.stream, *shared);
  }
  if (run_.ranks) run_.ranks->gather("sample", "");  // the others wait
}

void Samples::write_text(int64_t done) const {
  const LongWork writing(*run_.listeners, "writing a sample");
  const RunSample& sample = run_.sample;
  const SampleLength length = sample.length;
  std::vector<int32_t> tokens = sample.prompt;
  Random random(run_.options.training.seed, static_cast<uint64_t>(done));
  Generator(run_.trainer->model(), *run_.stream, length.prompt + length.drawn,
            run_.trainer->shared())
      .extend(tokens, length.drawn,
              {.vocabulary = run_.tokenizer->vocabulary(), .stop_tokens = sample.stop_tokens},
              random);
  const std::string message = sample.message.empty() ? "" : fmt::format("> {}\n", sample.message);
  const std::string text = run_.tokenizer->decode(std::span(tokens).subspan(sample.prompt.size()));
  run_.listeners->say(fmt::format("--- sample after step {}\n{}{}\n---", done, message,
                                  from_character_to_character(text)));
}

}  // namespace spool
