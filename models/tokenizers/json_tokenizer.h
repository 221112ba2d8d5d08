#pragma once

// A tokenizer read from tokenizer.json, Hugging Face's format, of the kinds that Llama, Qwen,
// SmolLM and similar models have.  Text passes through these, in order:
//
//   added tokens   found in the text as it is (added_tokens.h); the text between them continues
//   normalizer     normalizer.h; then added tokens that are found in normalised text
//   pre-tokenizer  pre_tokenizer.h or metaspace.h; without one, text is cut before words
//   merges         piece_encoder.h, of the tokens of the piece's bytes or characters
//
// Bytes that are not UTF-8, which the original refuses, are encoded as bytes if the vocabulary has
// these.  Decoding restores the text byte for byte, except what the normalizer changed and
// characters that the vocabulary lacks.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spool/models/tokenizers/added_tokens.h"
#include "spool/models/tokenizers/metaspace.h"
#include "spool/models/tokenizers/normalizer.h"
#include "spool/models/tokenizers/piece_encoder.h"
#include "spool/models/tokenizers/pre_tokenizer.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// The contents of a tokenizer.json.
struct TokenizerParts {
  std::vector<std::string> texts;  // decoded, by id; empty: no token has this id
  std::unordered_map<int32_t, std::string> texts_at_begin;  // where the begin of a text differs
  PieceVocabulary encoding;
  Normalizer normalizer;
  PreTokenizer pieces;
  std::optional<Metaspace> metaspace;  // instead of pieces
  AddedTokens added, added_after_normalizer;
  std::map<std::string, int32_t, std::less<>> added_ids;
  std::vector<int32_t> special, begin_of_text, after_text;
  std::optional<int32_t> end_of_text;
  std::string stripped;                      // removed from the beginning of decoded text,
  int64_t max_stripped = 0;                  // at most this many times
  std::map<std::string, std::string> files;  // by name: tokenizer.json and related files
};

class JsonTokenizer : public Tokenizer {
 public:
  static constexpr std::string_view kind = "tokenizer.json";

  explicit JsonTokenizer(TokenizerParts);

  std::string_view name() const override { return kind; }
  int64_t vocabulary() const override { return std::ssize(parts_.texts); }
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override;
  void encode_rest(std::string_view text, std::vector<int32_t>& tokens) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  std::string decode_rest(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return parts_.end_of_text; }
  std::vector<int32_t> begin_of_text() const override { return parts_.begin_of_text; }
  std::vector<int32_t> after_text() const override { return parts_.after_text; }
  std::vector<int32_t> special_ids() const override { return parts_.special; }
  std::optional<int32_t> token_id(std::string_view text) const override;
  size_t boundary(std::string_view text) const override;

  // Whether both have the same tokenizer.json.
  bool operator==(const JsonTokenizer&) const;
  // Writes the files that it was read from, byte for byte.
  void write_files(const std::filesystem::path& directory) const;

 private:
  struct Work;

  void encode_from(std::string_view text, TextPlace place, std::vector<int32_t>& tokens) const;
  void encode_between(std::string_view text, TextPlace place, Work&) const;
  void encode_pieces(std::string_view text, TextPlace place, Work&) const;
  void encode_words(std::string_view text, Work&) const;
  const std::string& text_of(int32_t token, bool begins) const;
  bool begins_words_at_blanks() const;
  bool prepends_after_tokens() const;
  size_t cut_between_pieces(std::string_view text) const;
  size_t cut_in_rest(std::string_view rest, const std::function<bool(size_t)>& allowed) const;
  std::map<size_t, size_t> common_places(std::string_view text, size_t size) const;
  bool can_cut(std::string_view text, size_t at) const;

  TokenizerParts parts_;
  std::string word_begin_;  // how a space is spelt if there are no pieces
  bool has_words_ = false;  // text is cut before words
  bool cuts_at_blanks_ = false;
  std::unique_ptr<const PieceEncoder> encoder_;
};

// Reads a tokenizer.json, with a tokenizer_config.json and other related files beside it.  Errors
// name the field; an unsupported part is refused by its type.
std::unique_ptr<JsonTokenizer> read_tokenizer_json(const std::filesystem::path&);
// The same for the text of such a file; `path` is where it is.
std::unique_ptr<JsonTokenizer> parse_tokenizer_json(std::string text, const std::filesystem::path&);

// The tokenizer of a GPT-2's folder with merges.txt, vocab.json and an added_tokens.json, which
// adds tokens: converts them to a tokenizer.json.
std::unique_ptr<JsonTokenizer> read_added_tokens(const std::filesystem::path& added_tokens);

}  // namespace spool
