#pragma once

// Finds the tokens that end a model's text.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// The tokens that generation_config.json in the model's folder names; if the file or its field
// eos_token_id is missing, those that config.json names; if it names none, the token that separates
// the tokenizer's documents.
std::vector<int32_t> stop_tokens_of(const std::filesystem::path& directory, const Tokenizer&);

// The first of them that a model with this vocabulary has, if there is one; without a folder the
// token that separates documents.
std::optional<int32_t> first_stop_token(const std::filesystem::path& directory, const Tokenizer&,
                                        int64_t rows);

}  // namespace spool
