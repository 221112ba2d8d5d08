#pragma once

// GPT-2's tokenizer: pieces of text (gpt2_pieces.h), each byte-pair encoded, and one token more,
// <|endoftext|>, that stands between documents.  The vocabulary is read from what people have, a
// merges.txt or llm.c's tokenizer file.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spool/models/tokenizers/byte_pair_encoding.h"
#include "spool/models/tokenizers/gpt2_pieces.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// The ids of an encoding's tokens, and tokens that no merge makes.
struct TokenIds {
  std::vector<int32_t> of_encoding;        // of each token of the encoding; none: themselves
  std::map<int32_t, std::string> special;  // by id; all ids together are 0 and on, each once
};

class Gpt2Tokenizer : public Tokenizer {
 public:
  static constexpr std::string_view end_of_text_text = "<|endoftext|>";

  // <|endoftext|> comes last.
  explicit Gpt2Tokenizer(BytePairEncoding);
  // Throws where the ids do not go with the encoding.
  Gpt2Tokenizer(BytePairEncoding, const TokenIds&);

  std::string_view name() const override { return "gpt2"; }
  int64_t vocabulary() const override { return std::ssize(texts_); }
  // As the original does: text that says <|endoftext|> is text like any other.
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override;
  // Special tokens are written as they are spelt, such as <|endoftext|>.
  std::string decode(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  size_t boundary(std::string_view text) const override { return pieces_.boundary(text); }

  const BytePairEncoding& encoding() const { return encoding_; }
  int32_t id(int32_t token_of_encoding) const;
  const std::map<int32_t, std::string>& special() const { return special_; }
  // Whether every text has the same tokens with both.
  bool operator==(const Gpt2Tokenizer&) const;

 private:
  BytePairEncoding encoding_;
  std::vector<int32_t> ids_;  // of the encoding's tokens, unless they are themselves
  std::map<int32_t, std::string> special_;
  std::vector<std::string> texts_;  // by id
  std::optional<int32_t> end_of_text_;
  Gpt2Pieces pieces_;
};

// Reads either kind of file; throws a sentence with the line or the field that is wrong.  A
// vocab.json beside a merges.txt has the ids; without one they are in the order of the merges, as
// GPT-2's are.
std::unique_ptr<Gpt2Tokenizer> read_gpt2_tokenizer(const std::filesystem::path&);

// merges.txt: after a line with its version, the two tokens of a merge a line, their bytes spelt in
// an alphabet of 256 visible characters.
BytePairEncoding read_merges(const std::filesystem::path&);

// vocab.json: the id of each token, spelt in the same alphabet, and of special ones.
TokenIds read_token_ids(const std::filesystem::path&, const BytePairEncoding&);

// llm.c's tokenizer: 256 x int32 [20240328, 2, vocabulary, end of text], then each token's length
// (uint8) and bytes.  It has no merges, but those of a token are what the older tokens leave of it.
BytePairEncoding read_llmc_tokenizer(const std::filesystem::path&);

// merges.txt, vocab.json and tokenizer_config.json, as transformers reads them.
void write_tokenizer_files(const std::filesystem::path& directory, const Gpt2Tokenizer&);

}  // namespace spool
