#pragma once

// A Tokenizer turns bytes of text into token ids and back: decode(encode(text)) is the text,
// whatever its bytes, unless a model's own tokenizer changes some (json_tokenizer.h).  It has no
// mutable state, so threads may share one.

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
  // Appends the tokens of a whole text, or of one that continues after a boundary().
  virtual void encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  virtual void encode_rest(std::string_view text, std::vector<int32_t>& tokens) const {
    encode(text, tokens);
  }
  // The text of these tokens, or what they add after others.  Throws if a token is not in the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  virtual std::string decode_rest(std::span<const int32_t> tokens) const { return decode(tokens); }
  // The token between documents, if there is one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // Tokens that a model expects before each text, and after it; encode() does not add them.
  virtual std::vector<int32_t> begin_of_text() const { return {}; }
  virtual std::vector<int32_t> after_text() const { return {}; }
  // Tokens that control a model and are not part of its text, such as <|im_end|>.
  virtual std::vector<int32_t> special_ids() const { return {}; }
  // The token that the vocabulary adds under this name, such as "<|im_end|>".
  virtual std::optional<int32_t> token_id(std::string_view) const { return {}; }
  // A place to cut any text that starts with `text`, so that the tokens of both parts are those of
  // the whole: at most text.size(), and above 0 unless `text` is empty.
  virtual size_t boundary(std::string_view text) const = 0;
};

// The prompt for a text that starts from nothing: the tokens before each text, or else the token
// between documents, or else a line break; only tokens that a model with this vocabulary has.
std::vector<int32_t> start_of_text(const Tokenizer&, int64_t rows = INT32_MAX);

// The token between documents, if a model with this vocabulary has it.
std::optional<int32_t> end_of_text_within(const Tokenizer&, int64_t rows);

// The tokens that a model with this vocabulary has.
std::vector<int32_t> tokens_within(std::vector<int32_t> tokens, int64_t rows);

// The tokens to put before a text with these tokens: begin_of_text() as far as the model has them,
// unless the text already begins with them.
std::vector<int32_t> begin_of_text_before(const Tokenizer&, std::span<const int32_t> tokens,
                                          int64_t rows = INT32_MAX);

// Throws if the model has no embedding of a token; names it, and its byte in the text, whose first
// token is at `begin`.
void check_rows(const Tokenizer&, std::span<const int32_t> tokens, int64_t rows,
                const std::string& text, uint64_t begin = 0);

// Decodes tokens one by one into parts of the text, each of whole characters.
class TextStream {
 public:
  // Whether the tokens begin a text or follow others.
  enum class From { begin, middle };
  TextStream(const Tokenizer& tokenizer, From from)
      : tokenizer_(tokenizer), is_begun_(from == From::middle) {}

  // The text to write now, without an incomplete character, which later tokens complete.
  std::string add(int32_t token);
  // What is left at the end: bytes that are not a character.
  std::string finish() { return std::move(held_); }

 private:
  const Tokenizer& tokenizer_;
  bool is_begun_;
  std::vector<int32_t> begin_;  // tokens so far, until they have text
  std::string held_;
};

// A tokenizer whose tokens are the 256 bytes; none of them ends a text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace spool
