#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/long_work.h"
#include "spool/models/cli/terminal_text.h"
#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/rehearsal.h"

namespace spool {
namespace {

struct GenerateArguments {
  std::string model, prompt, device, dtype = "f32";
  TokenizerChoice tokenizer = {};
  int64_t tokens = 200;
  SamplingOptions sampling = {};
  uint64_t seed = 1;
  int threads = 0;
  bool interactive = false;
};

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void check_arguments(const GenerateArguments& a) {
  check(a.tokens > 0 && a.tokens < (1 << 30), "--tokens must be between 1 and 2^30, not ",
        a.tokens);
  check(a.sampling.temperature >= 0, "--temperature must be 0 or more, not ",
        a.sampling.temperature);
  check(a.sampling.top_k >= 0, "--top-k must be 0 or more, not ", a.sampling.top_k);
  check(!gpt2_preset(a.model), "--model ", a.model,
        " has no trained weights to generate text with; give the directory or the file of a model");
}

// Generates and prints text with a model on a stream of its own.
class Writer {
 public:
  Writer(const GenerateArguments& a, const ModelFile& file, const Tokenizer& tokenizer)
      : arguments_(a), tokenizer_(tokenizer), random_(a.seed) {
    const int64_t given = std::ssize(tokens_of(a.prompt));
    const DType dtype = *parse<DType>(a.dtype);
    const auto rehearsal = [&](Stream& stream) {
      Gpt2 model(file.config(), dtype, stream);
      Generator generator(model, stream);
      a.interactive ? generator.rehearse() : generator.rehearse(given, a.tokens);
    };
    CommandWork work("preparing the model");
    stream_ = open_stream_for(rehearsal, device_of(a.device), a.threads);
    model_.emplace(file.config(), dtype, *stream_);
    file.load(*model_, work.loading());
    generator_.emplace(*model_, *stream_);
    sampling_ = a.sampling;
    sampling_.vocabulary = tokenizer.vocabulary();
    sampling_.end_of_text = tokenizer.end_of_text();
  }

  void begin(const std::string& prompt) {
    generator_->begin();
    generator_->read(tokens_of(prompt));
  }

  // Continues the text, and prints what it adds.
  void write() {
    for (int64_t i = 0; i < arguments_.tokens && !interrupted(); ++i) {
      const int32_t token = generator_->next(sampling_, random_);
      if (token == sampling_.end_of_text) break;
      show(tokenizer_.decode({&token, 1}));
    }
    print(text_.rest() + "\n");
  }

  // Files and pipes keep the bytes.
  void show(const std::string& bytes) { print(is_terminal_ ? text_(bytes) : bytes); }

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt) const {
    if (prompt.empty()) return start_of_text(tokenizer_);
    std::vector<int32_t> tokens;
    tokenizer_.encode(prompt, tokens);
    return tokens;
  }

  const GenerateArguments& arguments_;
  const Tokenizer& tokenizer_;
  SamplingOptions sampling_;
  Random random_;
  std::unique_ptr<Stream> stream_;
  std::optional<Gpt2> model_;
  std::optional<Generator> generator_;
  bool is_terminal_ = ::isatty(STDOUT_FILENO);
  TerminalText text_;
};

// Each line of standard input starts a new text; an empty line continues the current one.
void converse(Writer& writer, const std::string& prompt) {
  const bool terminal = ::isatty(STDIN_FILENO);
  if (terminal) {
    print(
        "A line starts a new text, an empty line continues it; Ctrl-C ends a text, Ctrl-D the "
        "program.\n");
  }
  writer.begin(prompt);
  if (!prompt.empty()) {
    writer.show(prompt);
    writer.write();
  }
  for (std::string line;;) {
    clear_interrupt();
    if (terminal) print("> ");
    if (!std::getline(std::cin, line)) return print(terminal ? "\n" : "");
    if (!line.empty()) writer.begin(line);
    writer.show(line);
    writer.write();
  }
}

int generate(const GenerateArguments& a) {
  check_arguments(a);
  const ModelFile file(a.model);
  const auto tokenizer = open_tokenizer(choose_tokenizer(a.tokenizer, file.directory()));
  check_file(file.config().vocabulary >= tokenizer->vocabulary(), file.name(), "a vocabulary of ",
             file.config().vocabulary, " is smaller than the tokenizer's, ",
             tokenizer->vocabulary());
  Writer writer(a, file, *tokenizer);
  catch_interrupts();
  try {
    if (a.interactive) {
      converse(writer, a.prompt);
    } else {
      writer.begin(a.prompt);
      writer.show(a.prompt);
      writer.write();
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::numeric) check_finite(file.tensors());
    throw;
  }
  return interrupted() ? stopped_by_a_signal : 0;
}

}  // namespace

std::function<int()> add_generate(CLI::App& app) {
  const auto a = std::make_shared<GenerateArguments>();
  add_model_flag(app, a->model)->required();
  app.add_option("--prompt", a->prompt, "Text to continue; by default a new text");
  app.add_option("--tokens", a->tokens,
                 "Maximum number of tokens to write; the text may end earlier")
      ->capture_default_str();
  app.add_flag("--interactive", a->interactive,
               "Read prompts line by line; an empty line continues the text");
  app.add_option("--temperature", a->sampling.temperature,
                 "Temperature of sampling; 0: always the most probable token")
      ->capture_default_str();
  app.add_option("--top-k", a->sampling.top_k,
                 "Number of most probable tokens to draw from; 0: all")
      ->capture_default_str();
  app.add_option("--seed", a->seed, "Seed of the random draws")->capture_default_str();
  add_tokenizer_flags(app, a->tokenizer);
  add_dtype_flag(app, a->dtype, "Type of the computation: f32 or bf16")->capture_default_str();
  add_device_flag(app, a->device);
  add_threads_flag(app, a->threads);
  return [a] { return generate(*a); };
}

}  // namespace spool
