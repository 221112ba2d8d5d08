#include "spool/models/tokenizers/added_tokens.h"

#include <algorithm>

#include "spool/models/tokenizers/normalizer.h"

namespace spool {
namespace {

int32_t byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

}  // namespace

void AddedTokens::add(std::string_view text, int32_t id) {
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const TokenPair step{node, byte_at(text, i)};
    node = next_[step];
    if (node != PairTable::none) continue;
    node = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
    next_.insert(step, node);
  }
  nodes_.begin()[node].id = id;
  begins_[byte_at(text, 0)] = true;
  texts_.emplace_back(text);
}

std::optional<AddedTokens::Found> AddedTokens::find(std::string_view text, size_t begin) const {
  if (texts_.empty()) return {};
  for (; begin < text.size(); ++begin) {
    if (!begins_[byte_at(text, begin)]) continue;
    Found longest;
    int32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      node = next_[{node, byte_at(text, i)}];
      if (node == PairTable::none) break;
      const int32_t id = nodes_.begin()[node].id;
      if (id != PairTable::none) longest = {.begin = begin, .size = i + 1 - begin, .id = id};
    }
    if (longest.size > 0) return longest;
  }
  return {};
}

bool AddedTokens::ends(std::string_view text) const {
  return std::ranges::any_of(texts_, [&](const auto& token) { return text.ends_with(token); });
}

size_t AddedTokens::incomplete(std::string_view text) const {
  size_t longest = 0;
  for (const std::string& token : texts_) {
    for (size_t size = std::min(token.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(std::string_view(token).substr(0, size))) longest = size;
    }
  }
  return text.size() - longest;
}

bool AddedTokens::any_spans(std::string_view before, std::string_view after) const {
  return std::ranges::any_of(texts_,
                             [&](const auto& token) { return spans(token, before, after); });
}

}  // namespace spool
