#pragma once

// A Tokenizer turns bytes of text into token ids and back: decode(encode(text)) is the text,
// whatever its bytes, unless the tokenizer of a model's authors changes some (json_tokenizer.h).
// It has no mutable state, so many threads may share one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spool {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  // Ids are in [0, vocabulary).
  virtual int64_t vocabulary() const = 0;
  // Appends to `tokens`, of a whole text, or of one that goes on after a boundary().
  virtual void encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  virtual void encode_rest(std::string_view text, std::vector<int32_t>& tokens) const {
    encode(text, tokens);
  }
  // The text of all tokens, or what these add after others.  Throws if a token is not in the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  virtual std::string decode_rest(std::span<const int32_t> tokens) const { return decode(tokens); }
  // The token between documents, if there is one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // Tokens that a model expects before each text, and after it; encode() does not add them.
  virtual std::vector<int32_t> begin_of_text() const { return {}; }
  virtual std::vector<int32_t> after_text() const { return {}; }
  // Tokens that control a model and are no text of its own, such as <|im_end|>.
  virtual std::vector<int32_t> special_ids() const { return {}; }
  // The token that the vocabulary adds under this name, such as "<|im_end|>".
  virtual std::optional<int32_t> token_id(std::string_view) const { return {}; }
  // A place to cut any text that starts with `text`, such that the tokens of both parts are those
  // of the whole: at most text.size(), and above 0 unless `text` is empty.
  virtual size_t boundary(std::string_view text) const = 0;
};

// The prompt of a text that starts from nothing: the tokens before each text, or else the token
// between documents, or else a line break; of tokens that a model with so many rows has.
std::vector<int32_t> start_of_text(const Tokenizer&, int64_t rows = INT32_MAX);

// The token between documents, if a model with so many rows has it.
std::optional<int32_t> end_of_text_within(const Tokenizer&, int64_t rows);

// Those of the tokens that a model with so many rows has.
std::vector<int32_t> tokens_within(std::vector<int32_t> tokens, int64_t rows);

// The tokens before a text with these tokens, as far as the model has rows for them:
// begin_of_text(), unless the text begins with them.
std::vector<int32_t> begin_of_text_before(const Tokenizer&, std::span<const int32_t> tokens,
                                          int64_t rows = INT32_MAX);

// Throws if a token has no row in the model; names it, and the text with its byte, of which the
// first token is at `begin`.
void check_rows(const Tokenizer&, std::span<const int32_t> tokens, int64_t rows,
                const std::string& text, uint64_t begin = 0);

// Decodes tokens one by one to parts of the text, each of whole characters.
class TextStream {
 public:
  // The tokens are those of a whole text, or follow others.
  enum class From { begin, middle };
  TextStream(const Tokenizer& tokenizer, From from)
      : tokenizer_(tokenizer), is_begun_(from == From::middle) {}

  // What can be written now: not an incomplete character, whose other bytes the next tokens have.
  std::string add(int32_t token);
  // What is left at the end: bytes that are no character.
  std::string finish() { return std::move(held_); }

 private:
  const Tokenizer& tokenizer_;
  bool is_begun_;
  std::vector<int32_t> begin_;  // tokens so far, until they have text
  std::string held_;
};

// Tokens are the 256 bytes; none of them ends a text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace spool
