#pragma once

// Converts text files to shards of tokens, and back.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "spool/models/data/text_files.h"

namespace spool {

// Where the end-of-text token goes: between files, if the tokenizer has one, or before each file,
// as in llm.c.
enum class Separation : uint8_t { none, between, before_each };

struct TokenizeOptions {
  std::filesystem::path out = {};
  DataFormat format = DataFormat::automatic;
  Separation separation = Separation::between;
  // Tokens per shard; the shards are OUT_000000.bin and so on.  0: one file, OUT.
  int64_t shard_tokens = 0;
  int threads = 0;                                               // 0: one per usable core
  std::function<void(size_t done, size_t total)> progress = {};  // bytes
};

struct TokenizeResult {
  size_t bytes = 0;  // of text
  int64_t tokens = 0;
  std::vector<std::filesystem::path> shards = {};
};

// Writes text as shards.  A shard appears under its name when it is complete and synced.  An error
// leaves no shards.
TokenizeResult tokenize(const Tokenizer&, std::span<const std::filesystem::path> texts,
                        const TokenizeOptions&);

// Calls write() with the text of the shards, piece by piece.
void detokenize(const Tokenizer&, std::span<const std::filesystem::path> shards,
                const std::function<void(std::string_view text)>& write);

}  // namespace spool
