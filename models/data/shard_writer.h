#pragma once

// Files of text to shards of tokens, and back.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct TokenizeOptions {
  std::filesystem::path out = {};
  // Put the token that ends a text before each file, as llm.c does between documents.
  bool separate = false;
  // Tokens of a shard, of which there are then several, OUT_000000.bin and so on; 0: one file.
  int64_t shard_tokens = 0;
  int threads = 0;                                               // 0: one per core
  std::function<void(size_t done, size_t total)> progress = {};  // bytes
};

struct TokenizeResult {
  size_t bytes = 0;  // of text
  int64_t tokens = 0;
  std::vector<std::filesystem::path> shards = {};
};

// A shard has its name when it is whole and synced, and nothing is left of one that failed.
TokenizeResult tokenize(const Tokenizer&, std::span<const std::filesystem::path> texts,
                        const TokenizeOptions&);

// Calls write() with the text of the shards, by parts.
void detokenize(const Tokenizer&, std::span<const std::filesystem::path> shards,
                const std::function<void(std::string_view text)>& write);

}  // namespace spool
