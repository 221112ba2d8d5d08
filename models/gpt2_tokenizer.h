#pragma once

// GPT-2's tokenizer: pieces of text (gpt2_pieces.h), each byte-pair encoded, and one token more,
// <|endoftext|>, that stands between documents.  The vocabulary is read from what people have, a
// merges.txt or llm.c's tokenizer file.

#include <filesystem>
#include <memory>

#include "spool/models/byte_pair_encoding.h"
#include "spool/models/gpt2_pieces.h"
#include "spool/models/tokenizer.h"

namespace spool {

class Gpt2Tokenizer : public Tokenizer {
 public:
  static constexpr std::string_view end_of_text_text = "<|endoftext|>";

  explicit Gpt2Tokenizer(BytePairEncoding encoding) : encoding_(std::move(encoding)) {}

  std::string_view name() const override { return "gpt2"; }
  int64_t vocabulary() const override { return encoding_.size() + 1; }
  // As the original does: text that says <|endoftext|> is text like any other.
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override;
  // The last token is decoded as <|endoftext|>.
  std::string decode(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return encoding_.size(); }
  size_t boundary(std::string_view text) const override { return pieces_.boundary(text); }

  const BytePairEncoding& encoding() const { return encoding_; }

 private:
  BytePairEncoding encoding_;
  Gpt2Pieces pieces_;
};

// Reads either kind of file; throws a sentence with the line or the field that is wrong.
std::unique_ptr<Gpt2Tokenizer> read_gpt2_tokenizer(const std::filesystem::path&);

// merges.txt: after a line with its version, the two tokens of a merge a line, their bytes spelt in
// an alphabet of 256 visible characters.
BytePairEncoding read_merges(const std::filesystem::path&);

// llm.c's tokenizer: 256 x int32 [20240328, 2, vocabulary, end of text], then each token's length
// (uint8) and bytes.  It has no merges, but those of a token are what the older tokens leave of it.
BytePairEncoding read_llmc_tokenizer(const std::filesystem::path&);

// merges.txt, vocab.json and tokenizer_config.json, as transformers reads them.
void write_tokenizer_files(const std::filesystem::path& directory, const Gpt2Tokenizer&);

}  // namespace spool
