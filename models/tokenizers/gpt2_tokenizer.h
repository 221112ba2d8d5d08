#pragma once

// GPT-2's tokenizer: pieces of text (gpt2_pieces.h), each byte-pair encoded, and the token
// <|endoftext|> between documents.  The vocabulary comes from a merges.txt or from llm.c's
// tokenizer file.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spool/models/tokenizers/byte_pair_encoding.h"
#include "spool/models/tokenizers/gpt2_pieces.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// The ids of a vocabulary: 0, 1, 2, ..., each once.
struct TokenIds {
  std::vector<int32_t> of_encoding;        // by token of the encoding; empty: they are the same
  std::map<int32_t, std::string> special;  // text by id, of tokens without a merge
};

class Gpt2Tokenizer : public Tokenizer {
 public:
  static constexpr std::string_view end_of_text_text = "<|endoftext|>";

  // The ids are those of the encoding; <|endoftext|> is last.
  explicit Gpt2Tokenizer(BytePairEncoding);
  // Throws if the ids do not match the encoding.
  Gpt2Tokenizer(BytePairEncoding, const TokenIds&);

  std::string_view name() const override { return "gpt2"; }
  int64_t vocabulary() const override { return std::ssize(texts_); }
  // As in the original, "<|endoftext|>" in a text is ordinary text.
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override;
  // Special tokens decode to their names, such as <|endoftext|>.
  std::string decode(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  size_t boundary(std::string_view text) const override { return pieces_.boundary(text); }

  const BytePairEncoding& encoding() const { return encoding_; }
  // The id of a token of the encoding.
  int32_t id(int32_t token) const;
  const std::map<int32_t, std::string>& special() const { return special_; }
  // Whether both encode every text to the same tokens.
  bool operator==(const Gpt2Tokenizer&) const;

 private:
  BytePairEncoding encoding_;
  std::vector<int32_t> ids_;  // as TokenIds::of_encoding
  std::map<int32_t, std::string> special_;
  std::vector<std::string> texts_;  // by id
  std::optional<int32_t> end_of_text_;
  Gpt2Pieces pieces_;
};

// Reads either kind of file; errors name the line or the field.  The ids come from a vocab.json
// beside a merges.txt; without it they are in the order of the merges, as GPT-2's are.
std::unique_ptr<Gpt2Tokenizer> read_gpt2_tokenizer(const std::filesystem::path&);

// merges.txt: a line with its version, then one merge per line: two tokens, spelt in the characters
// of byte_alphabet.h.
BytePairEncoding read_merges(const std::filesystem::path&);

// vocab.json: the ids of all tokens, spelt in the same characters, and of special tokens.
TokenIds read_token_ids(const std::filesystem::path&, const BytePairEncoding&);

// llm.c's tokenizer: 256 x int32 [20240328, 2, vocabulary, end of text], then each token's length
// (uint8) and bytes.  Encoding a token with those before it finds its merge.
BytePairEncoding read_llmc_tokenizer(const std::filesystem::path&);

// Writes merges.txt, vocab.json and tokenizer_config.json, as transformers reads them.
void write_tokenizer_files(const std::filesystem::path& directory, const Gpt2Tokenizer&);

}  // namespace spool
