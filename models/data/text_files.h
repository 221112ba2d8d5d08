#pragma once

// Tells whether data files are text or shards of tokens; refuses others, and says what they are.
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
  text,       // all files are text, whatever their bytes
  by_name     // as in runs of early versions: *.bin are shards, all else is text
};
template <>
inline constexpr std::array enumerator_names<DataFormat>{"auto", "text", "by-name"};

// Whether all files are shards.  Throws if some are shards and others text, or one is neither.
bool are_shards(std::span<const std::filesystem::path> files, DataFormat = DataFormat::automatic);

// Throws unless all files are text.
void check_are_text(std::span<const std::filesystem::path> files, DataFormat);

// An open file of text.
struct TextFile {
  InputFile file;
  uint64_t begin = 0;  // of the text in it: after a UTF-8 byte order mark, if there is one

  TextFile(const std::filesystem::path&, DataFormat = DataFormat::automatic);
  uint64_t size() const { return file.size() - begin; }
};

// Writes the tokens of documents one after the other, with the token `between` between two of them,
// unless the first ends or the second begins with it already.
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
  bool owes_ = false;  // `between` must be written before the next token
};

// A message that this many documents run together, if the tokenizer has no token to separate them;
// else empty.
enum class BeginOfText : uint8_t { written, left_out };
std::string describe_joined_documents(size_t count, const Tokenizer&, BeginOfText,
                                      int64_t rows = INT32_MAX);

}  // namespace spool
