#include "spool/models/tokenizers/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "spool/models/tokenizers/normalizer.h"
#include "spool/models/tokenizers/utf8.h"

namespace spool {
namespace {

int32_t byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

// The last character of the text; empty if its last bytes are not one.
std::string_view last_character(std::string_view text) {
  for (size_t size = 1; size <= 4 && size <= text.size(); ++size) {
    const std::string_view last = text.substr(text.size() - size);
    if (first_character_size(last) == size) return last;
  }
  return {};
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, first_character_size(text));
}

bool is_white_space(std::string_view character) {
  if (character.empty()) return false;
  const char32_t c = code_point(character);
  return (9 <= c && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (0x2000 <= c && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

size_t white_space_at_begin(std::string_view text) {
  size_t size = 0;
  while (is_white_space(first_character(text.substr(size)))) {
    size += first_character_size(text.substr(size));
  }
  return size;
}

size_t white_space_at_end(std::string_view text) {
  size_t size = 0;
  std::string_view last;
  while (is_white_space(last = last_character(text.substr(0, text.size() - size)))) {
    size += last.size();
  }
  return size;
}

// Whether it belongs to a word in Unicode's sense: a letter, mark, digit, connector or joiner.
bool is_word_character(std::string_view character) {
  if (character.empty()) return false;
  const char32_t c = code_point(character);
  const bool is_circled = (0x24b6 <= c && c <= 0x24e9) || (0x1f130 <= c && c <= 0x1f149) ||
                          (0x1f150 <= c && c <= 0x1f169) || (0x1f170 <= c && c <= 0x1f189);
  if (is_circled || c == 0x200c || c == 0x200d) return true;
  switch (::utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_within_word(std::string_view before, std::string_view after) {
  return is_word_character(last_character(before)) || is_word_character(first_character(after));
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  int32_t node = 0;
  for (size_t i = 0; i < token.text.size(); ++i) {
    const TokenPair step{node, byte_at(token.text, i)};
    node = next_[step];
    if (node != PairTable::none) continue;
    node = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
    next_.insert(step, node);
  }
  nodes_.begin()[node].token = static_cast<int32_t>(tokens_.size());
  begins_[byte_at(token.text, 0)] = true;
  tokens_.push_back(std::move(token));
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t begin) const {
  if (tokens_.empty()) return {};
  for (; begin < text.size(); ++begin) {
    if (!begins_[byte_at(text, begin)]) continue;
    Match longest;
    int32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      node = next_[{node, byte_at(text, i)}];
      if (node == PairTable::none) break;
      const int32_t token = nodes_.begin()[node].token;
      if (token != PairTable::none) longest = {.begin = begin, .end = i + 1, .token = token};
    }
    if (longest.end > 0) return longest;
  }
  return {};
}

// The search continues within the white space that a token takes, as it may contain another one.
std::optional<AddedTokens::Found> AddedTokens::Walk::next() {
  while (const auto match = tokens_.find(text_, at_)) {
    at_ = match->end;
    const AddedToken& token = tokens_.tokens_.begin()[match->token];
    const std::string_view before = text_.substr(0, match->begin), after = text_.substr(at_);
    if (token.single_word && is_within_word(before, after)) continue;
    size_t begin = match->begin;
    if (token.takes_left) begin = std::max(begin - white_space_at_end(before), reached_);
    reached_ = at_ + (token.takes_right ? white_space_at_begin(after) : 0);
    begin = std::min(begin, reached_);
    return Found{.begin = begin, .size = reached_ - begin, .id = token.id};
  }
  return {};
}

bool AddedTokens::ends(std::string_view text) const {
  return std::ranges::any_of(tokens_, [&](const auto& t) { return text.ends_with(t.text); });
}

size_t AddedTokens::incomplete(std::string_view text) const {
  size_t longest = 0;
  for (const AddedToken& token : tokens_) {
    for (size_t size = std::min(token.text.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(std::string_view(token.text).substr(0, size))) longest = size;
    }
  }
  return text.size() - longest;
}

bool AddedTokens::any_spans(std::string_view before, std::string_view after) const {
  const std::string_view visible = before.substr(0, before.size() - white_space_at_end(before));
  return std::ranges::any_of(tokens_, [&](const AddedToken& t) {
    const bool is_left = before.ends_with(t.text);
    const bool is_right = std::string_view(t.text).starts_with(after.substr(0, t.text.size()));
    return spans(t.text, before, after) || (t.single_word && (is_left || is_right)) ||
           (t.takes_right && visible.ends_with(t.text));
  });
}

}  // namespace spool
