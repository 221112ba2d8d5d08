#pragma once

// Files as training data: text in which a token is a byte, or shards of tokens as llm.c has them.
// Files are mapped into memory, so that data may be larger than memory.
//
// A shard is 256 x int32 [20240520, 1, count] and as many uint16, or [20240801, 7, count] and as
// many uint32 (the layout for Llama 3), and not a byte more.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "spool/models/data/batches.h"
#include "spool/runtime/files/file.h"

namespace spool {

// Text files end to end as one sequence in which a token is a byte.
Tokens open_texts(std::span<const std::filesystem::path> files);

// Shards end to end.  Reading a token that is not in the vocabulary throws a sentence with its
// place.
Tokens open_shards(std::span<const std::filesystem::path> files, int64_t vocabulary);
// One that is open; `name` is for the sentences.
Tokens open_shard(const File&, const std::string& name, int64_t vocabulary);

// By its extension.
bool is_shard(const std::filesystem::path&);

// Writes a shard of uint16 into a file that is empty.
class ShardWriter {
 public:
  static constexpr int64_t max_tokens = INT32_MAX;

  explicit ShardWriter(File& file) : file_(file) {}

  int64_t size() const { return count_; }
  // Throws where a token is not below 65536, or there are too many for one shard.
  void append(std::span<const int32_t> tokens);
  // Writes the header; until then no reader takes the file.
  void finish();

 private:
  File& file_;
  int64_t count_ = 0;
  std::vector<uint16_t> narrow_;
};

}  // namespace spool
