#include "spool/models/tokenizers/byte_pair_encoding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

uint64_t key(TokenPair p) {
  return uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right);
}

// Bytes up to which each merge scans all pairs; longer pieces use a queue.
constexpr size_t max_short_piece = 64;

}  // namespace

size_t PairTable::slot_of(uint64_t pair) const {
  constexpr uint64_t golden = 0x9e3779b97f4a7c15u;
  const uint64_t mixed = (pair ^ pair >> 29) * golden;
  size_t at = mixed >> (64 - std::countr_zero(slots_.size()));
  while (slots_[at].token != none && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

int32_t PairTable::operator[](TokenPair pair) const { return slots_[slot_of(key(pair))].token; }

bool PairTable::insert(TokenPair pair, int32_t token) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(key(pair))];
  if (slot.token != none) return false;
  slot = {key(pair), token};
  ++size_;
  return true;
}

void PairTable::grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : before) {
    if (slot.token != none) slots_[slot_of(slot.pair)] = slot;
  }
}

BytePairEncoding::BytePairEncoding(std::string_view bytes) : texts_(bytes) {
  check(bytes.size() == byte_count, "byte-pair encoding: ", bytes.size(), " bytes instead of 256");
  std::ranges::fill(of_byte_, PairTable::none);
  for (int32_t i = 0; i < byte_count; ++i) {
    of_byte_[static_cast<unsigned char>(bytes.begin()[i])] = i;
    ends_.push_back(ends_.size() + 1);
  }
  check(std::ranges::find(of_byte_, PairTable::none) == std::end(of_byte_),
        "byte-pair encoding: a byte is missing");
}

void BytePairEncoding::add_merge(TokenPair pair) {
  const auto known = [&](int32_t token) { return 0 <= token && token < size(); };
  check(known(pair.left) && known(pair.right), "byte-pair encoding: a merge of tokens ", pair.left,
        " and ", pair.right, ", and there are ", size());
  check(pairs_.insert(pair, size()), "byte-pair encoding: ", pair.left, " and ", pair.right,
        " have a merge already");
  texts_ += std::string(text(pair.left)).append(text(pair.right));
  ends_.push_back(texts_.size());
  merges_.push_back(pair);
}

std::string_view BytePairEncoding::text(int32_t token) const {
  check(0 <= token && token < size(), "byte-pair encoding: there is no token ", token, " among ",
        size());
  const auto i = static_cast<size_t>(token);
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(texts_).substr(begin, ends_[i] - begin);
}

void BytePairEncoding::encode(std::string_view piece, std::vector<int32_t>& tokens) const {
  if (piece.size() <= max_short_piece) return encode_short(piece, tokens);
  encode_long(piece, tokens);
}

// joined[i] is the token that parts i and i + 1 would become.
void BytePairEncoding::encode_short(std::string_view piece, std::vector<int32_t>& tokens) const {
  if (piece.empty()) return;
  constexpr auto never = static_cast<uint32_t>(PairTable::none);
  std::array<int32_t, max_short_piece> parts;
  std::array<uint32_t, max_short_piece> joined;
  size_t n = piece.size();
  for (size_t i = 0; i < n; ++i) parts[i] = of_byte(piece[i]);
  const auto look_up = [&](size_t i) {
    joined[i] = static_cast<uint32_t>(pairs_[{parts[i], parts[i + 1]}]);
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const auto first = std::min_element(joined.begin(), joined.begin() + n - 1);
    if (*first == never) break;
    const auto at = static_cast<size_t>(first - joined.begin());
    parts[at] = static_cast<int32_t>(*first);
    std::copy(parts.begin() + at + 2, parts.begin() + n, parts.begin() + at + 1);
    std::copy(joined.begin() + at + 1, joined.begin() + n - 1, joined.begin() + at);
    --n;
    if (at > 0) look_up(at - 1);
    if (at + 1 < n) look_up(at);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.begin() + n);
}

// The same in O(n log n), with a linked list of parts and a queue of pairs.  A queued pair is out
// of date if its left part is gone or no longer becomes that token with its right neighbour.
void BytePairEncoding::encode_long(std::string_view piece, std::vector<int32_t>& tokens) const {
  struct Part {
    int32_t token;
    size_t previous, next;
  };
  struct Candidate {
    int32_t token;
    size_t left;
    bool operator>(const Candidate& c) const {
      return token != c.token ? token > c.token : left > c.left;
    }
  };
  constexpr int32_t gone = -1;
  const size_t n = piece.size();
  std::vector<Part> parts(n);
  for (size_t i = 0; i < n; ++i) parts[i] = {of_byte(piece[i]), i - 1, i + 1};
  const auto joined = [&](size_t left) {
    const Part& p = parts[left];
    return p.next < n ? pairs_[{p.token, parts[p.next].token}] : PairTable::none;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](size_t left) {
    if (const int32_t token = joined(left); token != PairTable::none) queue.push({token, left});
  };
  for (size_t i = 0; i < n; ++i) consider(i);
  while (!queue.empty()) {
    const auto [token, left] = queue.top();
    queue.pop();
    Part& part = parts[left];
    if (part.token == gone || joined(left) != token) continue;
    Part& right = parts[part.next];
    part.token = token;
    part.next = right.next;
    right.token = gone;
    if (part.next < n) parts[part.next].previous = left;
    consider(left);
    if (part.previous < n) consider(part.previous);
  }
  for (size_t i = 0; i < n; i = parts[i].next) tokens.push_back(parts[i].token);
}

}  // namespace spool
