#include "spool/models/training/run/tokenizer.h"

#include <algorithm>

#include "spool/models/data/chats/chat.h"
#include "spool/models/families/model_file.h"
#include "spool/models/inference/stop_tokens.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The file of a checkpoint that such a tokenizer has its vocabulary in.
std::optional<fs::path> vocabulary_of(const TokenizerChoice& choice, const fs::path& checkpoint) {
  if (choice.json.empty()) return vocabulary_in(checkpoint);
  const auto own = tokenizer_in(checkpoint);
  return own && !own->json.empty() ? std::optional(own->json) : std::nullopt;
}

// What the files of a model say of its texts, as far as its vocabulary of `rows` has the tokens.  A
// file that is wrong there does not concern its training.
void add_model_sample(RunSample& sample, const fs::path& directory, const Tokenizer& tokenizer,
                      int64_t rows) {
  try {
    sample.stop_tokens = stop_tokens_of(directory, tokenizer);
    const auto chat = find_chat(tokenizer, directory);
    if (!chat) return;
    const std::string message = "Hello! What can you do?";
    std::vector<int32_t> prompt = chat->begin(/*system=*/"", message);
    if (std::ranges::max(prompt) >= rows) return;
    sample.message = message;
    sample.prompt = std::move(prompt);
    sample.stop_tokens.push_back(chat->end());
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
  }
}

}  // namespace

// A checkpoint has its tokenizer; so may the weights that a run starts from.
std::unique_ptr<Tokenizer> open_run_tokenizer(RunOptions& options,
                                              const std::optional<fs::path>& checkpoint) {
  TokenizerChoice& choice = options.tokenizer;
  if (checkpoint) {
    choice = choose_tokenizer(choice, *checkpoint);
  } else if (has_weights(options.model)) {
    choice = choose_tokenizer(choice, describe_model(paths_of(options)).directory);
  } else {
    choice = choose_tokenizer(choice);
  }
  auto tokenizer = open_tokenizer(choice);
  if (const auto own = checkpoint ? vocabulary_of(choice, *checkpoint) : std::nullopt) {
    const bool has_merges = choice.json.empty();
    TokenizerChoice same = choice;
    (has_merges ? same.merges : same.json) = *own;
    check_setting(same_tokens(*tokenizer, *open_tokenizer(same)), {"merges", "tokenizer"},
                  (has_merges ? choice.merges : choice.json).string(),
                  " is not the run's vocabulary, ", own->string(),
                  "; leave the setting out to resume with the run's");
  }
  ModelConfig& model = options.training.model;
  const bool is_free =
      !checkpoint && !has_weights(options.model) && !options.given.contains("vocab");
  if (is_free && tokenizer->vocabulary() > model.shape().vocabulary) {
    model = model.with("vocab", tokenizer->vocabulary());
  }
  // Weights may have fewer rows, if no text has the other tokens.
  const int64_t vocabulary = model.shape().vocabulary;
  const bool has_rows = checkpoint || has_weights(options.model);
  check_setting(has_rows || vocabulary >= tokenizer->vocabulary(), {"vocab"},
                "the model's vocabulary of ", vocabulary, " is smaller than the tokenizer's, ",
                tokenizer->vocabulary());
  return tokenizer;
}

fs::path directory_of_run(const RunOptions& options, const std::optional<fs::path>& checkpoint) {
  if (checkpoint) return *checkpoint;
  if (has_weights(options.model)) return describe_model(paths_of(options)).directory;
  const TokenizerChoice& choice = options.tokenizer;
  return (choice.json.empty() ? choice.merges : choice.json).parent_path();
}

void take_prompt(RunSample& sample, const std::optional<Prompt>& prompt) {
  if (!prompt || sample.length.drawn == 0) return;
  sample.prompt = prompt->tokens;
  sample.message = prompt->words;
  sample.stop_tokens.insert(sample.stop_tokens.end(), prompt->stop_tokens.begin(),
                            prompt->stop_tokens.end());
  sample.length.prompt = std::ssize(sample.prompt);
}

RunSample sample_of(const RunOptions& options, const Tokenizer& tokenizer,
                    const std::optional<fs::path>& checkpoint) {
  constexpr int64_t drawn = 300;  // tokens
  if (!options.sample) return {};
  const int64_t rows = options.training.model.shape().vocabulary;
  RunSample sample{.prompt = start_of_text(tokenizer, rows)};
  if (const auto end = tokenizer.end_of_text()) sample.stop_tokens = {*end};
  if (has_weights(options.model)) {
    add_model_sample(sample, directory_of_run(options, checkpoint), tokenizer, rows);
  }
  sample.length = {.prompt = std::ssize(sample.prompt), .drawn = drawn};
  return sample;
}

}  // namespace spool
