#pragma once

// Which tokenizer a user means.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct TokenizerChoice {
  std::string name;              // bytes or gpt2; empty: not said
  std::filesystem::path merges;  // gpt2's vocabulary, merges.txt or llm.c's; empty: not said
};

// For a model that is made new: what was not said is gpt2 where merges were given, else bytes.
// Throws where that cannot be.
TokenizerChoice choose_tokenizer(const TokenizerChoice& asked);

// For a model of a directory with files: what was not said is what these files say, the run.json of
// a checkpoint or a vocabulary beside the weights.  Throws where they say nothing.
TokenizerChoice choose_tokenizer(const TokenizerChoice& asked,
                                 const std::filesystem::path& directory);

// GPT-2's vocabulary beside the weights of a model, under the names that transformers and llm.c
// give it.
std::optional<std::filesystem::path> vocabulary_in(const std::filesystem::path& directory);

// Of a choice in which all is said.
std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerChoice&);

// Whether every text has the same tokens with both.
bool same_tokens(const Tokenizer&, const Tokenizer&);

// So that choose_tokenizer() finds it there, and transformers too.
void save_tokenizer(const std::filesystem::path& directory, const Tokenizer&);

}  // namespace spool
