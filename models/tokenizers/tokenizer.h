// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// A Tokenizer turns bytes of text into token ids and back: decode(encode(text)) is the text,
// whatever its bytes.  It has no mutable state, so many threads may share one.

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
  // Appends to `tokens`.
  virtual void encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  // Throws if a token is not in the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // The token between documents, if there is one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // A place to cut any text that starts with `text`, such that the tokens of both parts are those
  // of the whole: at most text.size(), and above 0 unless `text` is empty.
  virtual size_t boundary(std::string_view text) const = 0;
};

// The prompt of a text that starts from nothing: the token between documents, or else a line break.
std::vector<int32_t> start_of_text(const Tokenizer&);

// Tokens are the 256 bytes; none of them ends a text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace spool
