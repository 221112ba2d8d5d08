#include "spool/models/training/run/samples.h"

#include <spdlog/fmt/fmt.h>

#include "spool/models/inference/generator.h"
#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/units.h"

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

void leave_out_slow_samples(RunSetup& run) {
  RunOptions& o = run.options;
  size_t bytes = 0;  // of a token
  for (const Parameter* p : run.trainer->model().parameters()) bytes += p->home.nbytes();
  if (bytes == 0 || !o.sample || o.given.contains("sample-every")) return;
  const double of_token = static_cast<double>(bytes) / run.machine.from_host_bytes_per_second;
  const double seconds = of_token * static_cast<double>(run.sample.length.drawn);
  const double step = run.planned.foretold.seconds;
  if (seconds <= step) return;
  o.sample = false;
  run.listeners->say(fmt::format(
      "no text samples are written: each of their {} tokens would copy the {} of "
      "parameters that live on the host, in all {}, and a step takes {}; say how often "
      "to write them if they are wanted (sample-every)",
      run.sample.length.drawn, format_bytes(bytes), format_seconds(seconds), format_seconds(step)));
}

}  // namespace spool
