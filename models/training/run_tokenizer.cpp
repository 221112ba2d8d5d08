#include "spool/models/training/run_tokenizer.h"

#include <algorithm>

#include "spool/models/families/model_file.h"

namespace spool {

namespace fs = std::filesystem;

// A checkpoint has its tokenizer; so may the weights that a run starts from.
std::unique_ptr<Tokenizer> open_run_tokenizer(RunOptions& options,
                                              const std::optional<fs::path>& checkpoint) {
  TokenizerChoice& choice = options.tokenizer;
  if (checkpoint) {
    choice = choose_tokenizer(choice, *checkpoint);
  } else if (has_weights(options.model)) {
    choice = choose_tokenizer(choice, ModelFile(options.model).directory());
  } else {
    choice = choose_tokenizer(choice);
  }
  auto tokenizer = open_tokenizer(choice);
  if (const auto own = checkpoint ? vocabulary_in(*checkpoint) : std::nullopt) {
    check_setting(same_tokens(*tokenizer, *open_tokenizer({.name = choice.name, .merges = *own})),
                  {"merges"}, choice.merges.string(), " is not the run's vocabulary, ",
                  own->string(), "; leave the setting out to resume with the run's");
  }
  int64_t& vocabulary = options.training.model.vocabulary;
  const bool is_free =
      !checkpoint && !has_weights(options.model) && !options.given.contains("vocab");
  if (is_free) vocabulary = std::max(vocabulary, tokenizer->vocabulary());
  check_setting(vocabulary >= tokenizer->vocabulary(), {"vocab"}, "the model's vocabulary of ",
                vocabulary, " is smaller than the tokenizer's, ", tokenizer->vocabulary());
  return tokenizer;
}

SampleLength sample_length(const Tokenizer& tokenizer) {
  constexpr int64_t drawn = 300;  // tokens
  return {.prompt = static_cast<int64_t>(start_of_text(tokenizer).size()), .drawn = drawn};
}

}  // namespace spool
