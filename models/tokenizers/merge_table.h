#pragma once

// The merges of byte-pair encoding (Sennrich et al. 2016).  Neighbouring parts of a piece of text
// are joined, first those whose merge has the lowest rank, and of equal pairs the leftmost, until
// no two neighbours have a merge.
//
// A merge is a pair of tokens and the token that they become; its rank is its place in the list.
// Tokens are numbered in any way: several merges may produce one token, and a part may have a
// larger number than the token it becomes.

#include <cstdint>
#include <span>
#include <vector>

namespace spool {

struct TokenPair {
  int32_t left = 0, right = 0;
};

// Maps pairs to numbers from 0 on.  A hash table with open addressing, since encoding spends most
// of its time in these lookups.
class PairTable {
 public:
  static constexpr int32_t none = -1;

  PairTable() : slots_(initial_slots) {}

  int32_t operator[](TokenPair pair) const;
  // Returns false and changes nothing if the table already has the pair.
  bool insert(TokenPair pair, int32_t number);

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t number = none;
  };
  static constexpr size_t initial_slots = 64;

  // The slot of the pair, or the free one where it belongs.
  size_t slot_of(uint64_t pair) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  size_t size_ = 0;
};

class MergeTable {
 public:
  int32_t size() const { return static_cast<int32_t>(products_.size()); }
  // Adds the merge with the next rank.  Returns false and changes nothing if the pair has one.
  bool add(TokenPair pair, int32_t product);
  // Joins the parts, overwriting them, and appends the remaining ones to `tokens`.
  void join(std::span<int32_t> parts, std::vector<int32_t>& tokens) const;

 private:
  void join_short(std::span<int32_t> parts, std::vector<int32_t>& tokens) const;
  void join_long(std::span<const int32_t> parts, std::vector<int32_t>& tokens) const;

  PairTable ranks_;
  std::vector<int32_t> products_;  // by rank
};

}  // namespace spool
