#include "spool/models/tokenizers/tokenizer.h"

#include <algorithm>

#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

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

std::vector<int32_t> start_of_text(const Tokenizer& tokenizer, int64_t rows) {
  const auto has_rows = [&](std::span<const int32_t> tokens) {
    return !tokens.empty() && std::ranges::max(tokens) < rows;
  };
  if (auto begin = tokenizer.begin_of_text(); has_rows(begin)) return begin;
  if (const auto end = tokenizer.end_of_text(); end && *end < rows) return {*end};
  std::vector<int32_t> tokens;
  tokenizer.encode("\n", tokens);
  return has_rows(tokens) ? tokens : std::vector<int32_t>{0};
}

std::optional<int32_t> end_of_text_within(const Tokenizer& tokenizer, int64_t rows) {
  const auto end = tokenizer.end_of_text();
  return end && *end < rows ? end : std::nullopt;
}

std::vector<int32_t> tokens_within(std::vector<int32_t> tokens, int64_t rows) {
  std::erase_if(tokens, [&](int32_t token) { return token >= rows; });
  return tokens;
}

std::vector<int32_t> begin_of_text_before(const Tokenizer& tokenizer,
                                          std::span<const int32_t> tokens, int64_t rows) {
  std::vector<int32_t> begin = tokens_within(tokenizer.begin_of_text(), rows);
  const bool is_there =
      tokens.size() >= begin.size() && std::ranges::equal(begin, tokens.first(begin.size()));
  if (is_there) begin.clear();
  return begin;
}

void check_rows(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t rows,
                const std::string& text, uint64_t begin) {
  const auto found = std::ranges::find_if(tokens, [&](int32_t token) { return token >= rows; });
  if (found == tokens.end()) return;
  const auto before = static_cast<size_t>(found - tokens.begin());
  const uint64_t at = begin + tokenizer.decode_rest(tokens.first(before)).size();
  fail(ErrorKind::invalid, text, ": has the token ", excerpt(tokenizer.decode_rest({&*found, 1})),
       " near byte ", at, ", which is number ", *found, ", and the model has rows for 0 to ",
       rows - 1, "; leave it out of the text");
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace spool
