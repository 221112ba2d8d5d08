#include "spool/models/tokenizers/piece_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "spool/models/tokenizers/utf8.h"

namespace spool {
namespace {

template <class T>
uint64_t load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

ShortText::ShortText(std::string_view text) : size(text.size()) {
  if (size >= 8) {
    begin = load<uint64_t>(text, 0);
    end = load<uint64_t>(text, size - 8);
  } else if (size >= 4) {
    begin = load<uint32_t>(text, 0);
    end = load<uint32_t>(text, size - 4);
  } else if (size > 0) {
    begin = load<uint8_t>(text, 0) | load<uint8_t>(text, size / 2) << 8;
    end = load<uint8_t>(text, size - 1);
  }
}

uint64_t ShortText::hash() const {
  constexpr uint64_t golden = 0x9e3779b97f4a7c15u, odd = 0xd6e8feb86659fd93u;
  uint64_t mixed = (begin ^ size * odd) * golden;
  mixed = (mixed ^ mixed >> 32 ^ end) * golden;
  return (mixed ^ mixed >> 29) * odd;
}

size_t TokenTable::place_of(const ShortText& text) const {
  size_t at = text.hash() >> (64 - std::countr_zero(slots_.size()));
  for (; slots_[at].token != none; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.begin == text.begin && slot.end == text.end && slot.size == text.size) break;
  }
  return at;
}

void TokenTable::insert(std::string_view text, int32_t token) {
  longest_ = std::max(longest_, text.size());
  if (text.size() > ShortText::max_bytes) {
    long_.emplace(text, token);
    return;
  }
  if (2 * (count_ + 1) > slots_.size()) grow();
  const ShortText key(text);
  Slot& slot = slots_[place_of(key)];
  if (slot.token != none) return;
  slot = {.begin = key.begin,
          .end = key.end,
          .size = static_cast<uint32_t>(text.size()),
          .token = token};
  ++count_;
}

int32_t TokenTable::operator[](std::string_view text) const {
  if (text.size() <= ShortText::max_bytes) return (*this)[ShortText(text)];
  if (text.size() > longest_) return none;
  const auto found = long_.find(text);
  return found == long_.end() ? none : found->second;
}

void TokenTable::grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : before) {
    if (slot.token == none) continue;
    ShortText text;
    text.begin = slot.begin;
    text.end = slot.end;
    text.size = slot.size;
    slots_[place_of(text)] = slot;
  }
}

PieceEncoder::PieceEncoder(PieceVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  has_all_bytes_ = vocabulary_.bytewise &&
                   std::ranges::find(vocabulary_.bytes, PairTable::none) == vocabulary_.bytes.end();
  std::vector<int32_t> symbols, tokens;
  for (const auto& [text, id] : vocabulary_.tokens) {
    if (!vocabulary_.takes_whole_tokens) {
      symbols.clear();
      tokens.clear();
      append_parts(text, symbols);
      vocabulary_.merges.join(symbols, tokens);
      if (tokens.size() != 1 || tokens[0] != id) continue;
    }
    whole_.insert(text, id);
  }
  vocabulary_.tokens.clear();
  vocabulary_.tokens.shrink_to_fit();
}

bool PieceEncoder::has_character(std::string_view character) const {
  return vocabulary_.characters[{0, static_cast<int32_t>(code_point(character))}] !=
         PairTable::none;
}

void PieceEncoder::encode(std::string_view piece, Work& work, std::vector<int32_t>& tokens) const {
  if (work.recent_.empty() || piece.size() > ShortText::max_bytes) {
    const int32_t whole = whole_[piece];
    return whole == TokenTable::none ? merge(piece, work, tokens) : tokens.push_back(whole);
  }
  const ShortText text(piece);
  Work::Recent& recent = work.recent_[text.hash() % Work::recent_pieces];
  if (recent.count > 0 && recent.piece == text) {
    if (recent.count == 1) return tokens.push_back(recent.tokens[0]);
    tokens.insert(tokens.end(), recent.tokens.begin(), recent.tokens.begin() + recent.count);
    return;
  }
  const size_t before = tokens.size();
  const int32_t whole = whole_[text];
  whole == TokenTable::none ? merge(piece, work, tokens) : tokens.push_back(whole);
  const size_t count = tokens.size() - before;
  if (count == 0 || count > recent.tokens.size()) return;
  recent.piece = text;
  recent.count = static_cast<uint32_t>(count);
  std::copy(tokens.begin() + static_cast<ptrdiff_t>(before), tokens.end(), recent.tokens.begin());
}

void PieceEncoder::merge(std::string_view piece, Work& work, std::vector<int32_t>& tokens) const {
  std::vector<int32_t>& parts = work.parts_;
  parts.clear();
  if (has_all_bytes_) {
    parts.resize(piece.size());
    std::ranges::transform(piece, parts.begin(), [&](char c) {
      return vocabulary_.bytes[static_cast<unsigned char>(c)];
    });
  } else {
    append_parts(piece, parts);
  }
  vocabulary_.merges.join(parts, tokens);
}

// A character that is not in the vocabulary becomes its bytes, if all of these are.
void PieceEncoder::append_parts(std::string_view piece, std::vector<int32_t>& parts) const {
  const PieceVocabulary& v = vocabulary_;
  bool after_unknown = false;
  while (!piece.empty()) {
    const size_t character = v.bytewise ? 0 : first_character_size(piece);
    const size_t size = std::max<size_t>(character, 1);
    const std::string_view bytes = piece.substr(0, size);
    piece.remove_prefix(size);
    const auto of_byte = [&](char c) { return v.bytes[static_cast<unsigned char>(c)]; };
    const int32_t known = character > 0 ? v.characters[{0, static_cast<int32_t>(code_point(bytes))}]
                                        : PairTable::none;
    const bool has_bytes =
        std::ranges::all_of(bytes, [&](char c) { return of_byte(c) != PairTable::none; });
    if (known != PairTable::none) {
      parts.push_back(known);
    } else if (has_bytes) {
      std::ranges::transform(bytes, std::back_inserter(parts), of_byte);
    } else if (v.unknown != PairTable::none && !(after_unknown && v.fuse_unknown)) {
      parts.push_back(v.unknown);
    }
    after_unknown = known == PairTable::none && !has_bytes;
  }
}

}  // namespace spool
