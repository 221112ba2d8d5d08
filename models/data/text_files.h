#pragma once

// What files of data are: text, or shards of tokens; anything else is refused by what it is.
//
// A file is text unless it begins as a file of another kind does (file_kind.h), has a NUL byte in
// its first 64 KiB, or has the name of JSON lines or of a table.  It need not be UTF-8.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/runtime/files/input_file.h"
#include "spool/runtime/names.h"

namespace spool {

enum class DataFormat : uint8_t {
  automatic,  // by the first bytes
  text,       // whatever the bytes are, all of them
  by_name     // as runs of early versions read it: *.bin are shards, all else is text
};
template <>
inline constexpr std::array enumerator_names<DataFormat>{"auto", "text", "by-name"};

// Whether all are shards.  Throws if some are and others text, or if one is neither.
bool are_shards(std::span<const std::filesystem::path> files, DataFormat = DataFormat::automatic);

// Throws unless all are text.
void check_are_text(std::span<const std::filesystem::path> files, DataFormat);

// An open file of text.
struct TextFile {
  InputFile file;
  uint64_t begin = 0;  // of the text in it: behind a mark of UTF-8, if it begins with one

  TextFile(const std::filesystem::path&, DataFormat = DataFormat::automatic);
  uint64_t size() const { return file.size() - begin; }
};

// Writes the tokens of one document after the other, with a token between them where neither the
// end of the first nor the beginning of the second is that token already.
class DocumentWriter {
 public:
  using Write = std::function<void(std::span<const int32_t>)>;

  DocumentWriter(std::optional<int32_t> between, Write write)
      : between_(between), write_(std::move(write)) {}

  void begin_document() { owes_ = between_ && last_ && *last_ != *between_; }
  void append(std::span<const int32_t> tokens);

 private:
  std::optional<int32_t> between_, last_;
  Write write_;
  bool owes_ = false;  // the token before the next
};

// Says that so many documents run into each other, if the tokenizer has no token to put between
// them; else empty.
enum class BeginOfText : uint8_t { written, left_out };
std::string describe_joined_documents(size_t count, const Tokenizer&, BeginOfText,
                                      int64_t rows = INT32_MAX);

}  // namespace spool
