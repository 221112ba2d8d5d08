#pragma once

// Opens files as training data: text whose tokens are bytes, or shards of tokens in llm.c's format.
// Tokens are read from the files on demand, so data may be larger than memory.
//
// A shard is 256 x int32 [20240520, 1, count] and `count` uint16, or [20240801, 7, count] and
// `count` uint32 (the format for Llama 3), and nothing else.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "spool/models/data/batches.h"
#include "spool/models/data/text_files.h"
#include "spool/runtime/files/file.h"

namespace spool {

// Text files end to end, as one sequence of bytes as tokens.  Reading a token outside the
// vocabulary throws.
Tokens open_texts(std::span<const std::filesystem::path> files, DataFormat = DataFormat::automatic,
                  int64_t vocabulary = 256);

// Shards end to end, as one sequence.  Reading a token outside the vocabulary throws an error with
// its position.
Tokens open_shards(std::span<const std::filesystem::path> files, int64_t vocabulary);
// An open shard; `name` is for messages.
Tokens open_shard(File, const std::string& name, int64_t vocabulary);

// Writes a shard into an empty file, as uint16, or as uint32 if the vocabulary has more than 65536
// ids.
class ShardWriter {
 public:
  static constexpr int64_t max_tokens = INT32_MAX;

  ShardWriter(File& file, int64_t vocabulary);

  int64_t size() const { return count_; }
  // Throws if a token is outside the vocabulary, or there are too many for one shard.
  void append(std::span<const int32_t> tokens);
  // Writes the header, without which readers refuse the file.
  void finish();

 private:
  bool is_wide() const { return vocabulary_ > int64_t{UINT16_MAX} + 1; }

  File& file_;
  int64_t vocabulary_;
  int64_t count_ = 0;
  std::vector<uint16_t> narrow_;
};

}  // namespace spool
