#pragma once

// Opens files of text or of tokens as one sequence of tokens.

#include <filesystem>
#include <functional>
#include <span>

#include "spool/models/data/batches.h"
#include "spool/models/data/text_files.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct DataReader {
  const Tokenizer& tokenizer;
  int64_t vocabulary = 0;  // of the model
  int threads = 0;         // for encoding; 0: one per usable core
  DataFormat format = DataFormat::automatic;
  bool separate = true;  // puts the end-of-text token, if there is one, between files of text
  // Called now and then while text is encoded, with bytes.
  std::function<void(size_t done, size_t total)> progress = {};

  // Opens shards as they are.  Encodes text file by file into a temporary file, unless tokens are
  // bytes; each file gets the tokens that the model expects before and after a text.  Throws if
  // there are both shards and text, or a file that is neither (text_files.h), or if the text has a
  // token outside the model's vocabulary.
  Tokens open(std::span<const std::filesystem::path> files) const;

 private:
  Tokens encode(std::span<const std::filesystem::path> files) const;
};

}  // namespace spool
