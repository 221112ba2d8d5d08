#include "spool/models/tokenizers/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <utility>

namespace spool {
namespace {

uint64_t key_of_pair(TokenPair p) {
  return uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right);
}

// Up to this many parts, each merge scans all pairs; longer pieces use a queue.
constexpr size_t max_scanned_parts = 64;

}  // namespace

size_t PairTable::slot_of(uint64_t pair) const {
  constexpr uint64_t golden = 0x9e3779b97f4a7c15u;
  const uint64_t mixed = (pair ^ pair >> 29) * golden;
  size_t at = mixed >> (64 - std::countr_zero(slots_.size()));
  while (slots_[at].number != none && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

int32_t PairTable::operator[](TokenPair pair) const {
  return slots_[slot_of(key_of_pair(pair))].number;
}

bool PairTable::insert(TokenPair pair, int32_t number) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(key_of_pair(pair))];
  if (slot.number != none) return false;
  slot = {key_of_pair(pair), number};
  ++size_;
  return true;
}

void PairTable::grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : before) {
    if (slot.number != none) slots_[slot_of(slot.pair)] = slot;
  }
}

bool MergeTable::add(TokenPair pair, int32_t product) {
  if (!ranks_.insert(pair, size())) return false;
  products_.push_back(product);
  return true;
}

void MergeTable::join(std::span<int32_t> parts, std::vector<int32_t>& tokens) const {
  if (parts.size() <= max_scanned_parts) return join_short(parts, tokens);
  join_long(parts, tokens);
}

// ranks[i] is the rank of the merge of parts i and i + 1.
void MergeTable::join_short(std::span<int32_t> parts, std::vector<int32_t>& tokens) const {
  if (parts.empty()) return;
  constexpr auto never = static_cast<uint32_t>(PairTable::none);
  std::array<uint32_t, max_scanned_parts> ranks;
  size_t n = parts.size();
  const auto look_up = [&](size_t i) {
    ranks[i] = static_cast<uint32_t>(ranks_[{parts[i], parts[i + 1]}]);
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const auto first = std::min_element(ranks.begin(), ranks.begin() + n - 1);
    if (*first == never) break;
    const auto at = static_cast<size_t>(first - ranks.begin());
    parts[at] = products_[*first];
    std::copy(parts.begin() + at + 2, parts.begin() + n, parts.begin() + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + n - 1, ranks.begin() + at);
    --n;
    if (at > 0) look_up(at - 1);
    if (at + 1 < n) look_up(at);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.begin() + n);
}

// The same in O(n log n), with a linked list of parts and a queue of pairs.  A queued pair is
// outdated if its left part is gone, or has no merge of that rank with its right neighbour.
void MergeTable::join_long(std::span<const int32_t> pieces, std::vector<int32_t>& tokens) const {
  struct Part {
    int32_t token;
    size_t previous, next;
  };
  struct Candidate {
    int32_t rank;
    size_t left;
    bool operator>(const Candidate& c) const {
      return rank != c.rank ? rank > c.rank : left > c.left;
    }
  };
  constexpr int32_t gone = -1;
  const size_t n = pieces.size();
  std::vector<Part> parts(n);
  for (size_t i = 0; i < n; ++i) parts[i] = {pieces[i], i - 1, i + 1};
  const auto rank_at = [&](size_t left) {
    const Part& p = parts[left];
    return p.next < n ? ranks_[{p.token, parts[p.next].token}] : PairTable::none;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](size_t left) {
    if (const int32_t rank = rank_at(left); rank != PairTable::none) queue.push({rank, left});
  };
  for (size_t i = 0; i < n; ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, left] = queue.top();
    queue.pop();
    Part& part = parts[left];
    if (part.token == gone || rank_at(left) != rank) continue;
    Part& right = parts[part.next];
    part.token = products_.begin()[rank];
    part.next = right.next;
    right.token = gone;
    if (part.next < n) parts[part.next].previous = left;
    consider(left);
    if (part.previous < n) consider(part.previous);
  }
  for (size_t i = 0; i < n; i = parts[i].next) tokens.push_back(parts[i].token);
}

}  // namespace spool
