#pragma once

// A Tokenizer turns bytes of text into token ids and back: decode(encode(text)) is the text,
// whatever its bytes.  It has no state, so one may serve many threads.

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
  // Appends.
  virtual void encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  // Throws where a token is not in the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // The token that stands between documents, where there is one.
  virtual std::optional<int32_t> end_of_text() const = 0;
  // Where a longer text that begins like this one may be cut so that the parts' tokens are the
  // whole's: at most text.size(), and above 0 for text that is not empty.
  virtual size_t boundary(std::string_view text) const = 0;
};

// What comes before a text of which nothing is given: the token between documents, or else the end
// of a line.
std::vector<int32_t> start_of_text(const Tokenizer&);

// A token is a byte, 256 in all, none of which ends a text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace spool
