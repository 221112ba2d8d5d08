#include "spool/models/tokenizers/tokenizer.h"

#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocabulary() const override { return 256; }

  void encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    tokens.reserve(tokens.size() + text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }

  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (int32_t token : tokens) {
      check(0 <= token && token < vocabulary(), "the byte tokenizer: token ", token,
            " is not in its vocabulary, 0 to ", vocabulary() - 1);
      text.push_back(static_cast<char>(token));
    }
    return text;
  }

  std::optional<int32_t> end_of_text() const override { return {}; }
  size_t boundary(std::string_view text) const override { return text.size(); }
};

}  // namespace

std::string TextStream::add(int32_t token) {
  if (is_begun_) {
    held_ += tokenizer_.decode_rest({&token, 1});
  } else {
    begin_.push_back(token);
    held_ = tokenizer_.decode(begin_);
    is_begun_ = !held_.empty();
  }
  const size_t size = without_incomplete_character(held_).size();
  std::string text = held_.substr(0, size);
  held_.erase(0, size);
  return text;
}

std::vector<int32_t> start_of_text(const Tokenizer& tokenizer) {
  if (auto begin = tokenizer.begin_of_text(); !begin.empty()) return begin;
  if (const auto end = tokenizer.end_of_text()) return {*end};
  std::vector<int32_t> tokens;
  tokenizer.encode("\n", tokens);
  return tokens;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace spool
