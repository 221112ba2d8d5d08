#pragma once

// Where a model's text ends.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// The tokens that the generation_config.json of a model's folder names, and no others; where that
// file or its field eos_token_id is not there, the token between the tokenizer's documents.
std::vector<int32_t> stop_tokens_of(const std::filesystem::path& directory, const Tokenizer&);

}  // namespace spool
