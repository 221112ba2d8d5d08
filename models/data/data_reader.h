#pragma once

// Data as a user names it: files of text or of tokens, to one sequence of tokens.

#include <filesystem>
#include <functional>
#include <span>

#include "spool/models/data/batches.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct DataReader {
  const Tokenizer& tokenizer;
  int64_t vocabulary = 0;  // of the model
  int threads = 0;         // for encoding; 0: one per core
  // Called now and then while text is encoded, with bytes.
  std::function<void(size_t done, size_t total)> progress = {};

  // Shards (*.bin) as they are; text encoded file by file, through a temporary file unless a token
  // is a byte.  Throws where there are both.
  Tokens open(std::span<const std::filesystem::path> files) const;

 private:
  Tokens encode(std::span<const std::filesystem::path> files) const;
};

}  // namespace spool
