#pragma once

// Byte-pair encoding (Sennrich et al. 2016) over bytes (Radford et al. 2019): a piece of text
// begins as its bytes, and the two neighbours whose merge was learnt first are joined, the leftmost
// such pair before others, until no two neighbours have a merge.
//
// Tokens 0 to 255 are the bytes in some order; token 256 + i is what merge i joins.  As a merge
// joins tokens that are older than itself, younger ids mean later merges.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spool {

// Two neighbours.
struct TokenPair {
  int32_t left = 0, right = 0;
};

// Which token two neighbours become: a hash table with open addressing, as a lookup for each pair
// of neighbours is most of the work.
class PairTable {
 public:
  static constexpr int32_t none = -1;

  PairTable() : slots_(initial_slots) {}

  int32_t operator[](TokenPair pair) const;
  // False, and nothing done, if the pair is there already.
  bool insert(TokenPair pair, int32_t token);

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t token = none;
  };
  static constexpr size_t initial_slots = 1024;

  size_t place(uint64_t pair) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  size_t size_ = 0;
};

class BytePairEncoding {
 public:
  static constexpr int32_t byte_count = 256;

  // bytes[i] is the byte that token i stands for; each there is once.
  explicit BytePairEncoding(std::string_view bytes);

  // The next token joins these two.  Throws where they are not older tokens or have a merge.
  void add_merge(TokenPair pair);

  int32_t size() const { return static_cast<int32_t>(merges_.size()) + byte_count; }
  // The bytes a token in [0, size()) stands for.
  std::string_view text(int32_t token) const;
  // Of a token from 256 on.
  TokenPair merge(int32_t token) const { return merges_[static_cast<size_t>(token - byte_count)]; }
  int32_t of_byte(char byte) const { return of_byte_[static_cast<unsigned char>(byte)]; }

  // Appends the tokens of a piece.
  void encode(std::string_view piece, std::vector<int32_t>& tokens) const;

 private:
  void encode_short(std::string_view piece, std::vector<int32_t>& tokens) const;
  void encode_long(std::string_view piece, std::vector<int32_t>& tokens) const;

  int32_t of_byte_[byte_count];
  std::string texts_;         // of all tokens, end to end
  std::vector<size_t> ends_;  // of each in texts_
  std::vector<TokenPair> merges_;
  PairTable pairs_;
};

}  // namespace spool
