#pragma once

// Chooses a tokenizer from a user's settings and the files beside a model.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct TokenizerChoice {
  // bytes, gpt2, tokenizer.json, or the path of such a file or of a folder with one, which is moved
  // to `json`; empty: not chosen.
  std::string name;
  std::filesystem::path merges;  // gpt2's vocabulary, merges.txt or llm.c's; empty: not chosen
  // A tokenizer.json, or the added_tokens.json beside merges.txt and vocab.json; empty: not chosen.
  std::filesystem::path json = {};
};

// For a new model: the one that `asked` names, else gpt2 if merges are given, else bytes.  Throws
// if name and merges contradict each other.
TokenizerChoice choose_tokenizer(const TokenizerChoice& asked);

// For a model in `directory`: completes the choice from a checkpoint's run.json or a vocabulary
// beside the weights.  Throws if neither does.
TokenizerChoice choose_tokenizer(const TokenizerChoice& asked,
                                 const std::filesystem::path& directory);

// The tokenizer whose files are beside a model's weights.  Of a folder with both kinds,
// tokenizer.json counts before merges.txt, except in a run that says that it has GPT-2's.
std::optional<TokenizerChoice> tokenizer_in(const std::filesystem::path& directory);

// GPT-2's vocabulary beside a model's weights, under transformers' name or llm.c's.
std::optional<std::filesystem::path> vocabulary_in(const std::filesystem::path& directory);

// The choice must be complete.
std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerChoice&);

// Whether both give every text the same tokens.
bool same_tokens(const Tokenizer&, const Tokenizer&);

// Writes the files by which choose_tokenizer() and transformers find the tokenizer.
void save_tokenizer(const std::filesystem::path& directory, const Tokenizer&);

}  // namespace spool
