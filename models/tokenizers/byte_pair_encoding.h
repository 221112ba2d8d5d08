// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Byte-pair encoding (Sennrich et al. 2016) over bytes (Radford et al. 2019).  A piece of text
// starts as the tokens of its bytes.  Then the two neighbours whose merge was learnt first are
// joined, the leftmost such pair before others, until no two neighbours have a merge.
//
// Tokens 0 to 255 are the bytes in some order; token 256 + i is the result of merge i, which joins
// two tokens with smaller ids.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spool {

struct TokenPair {
  int32_t left = 0, right = 0;
};

// Maps two neighbours to the token they become.  A hash table with open addressing: most of the
// time of encoding goes into these lookups.
class PairTable {
 public:
  static constexpr int32_t none = -1;

  PairTable() : slots_(initial_slots) {}

  int32_t operator[](TokenPair pair) const;
  // Returns false and changes nothing if the table has the pair.
  bool insert(TokenPair pair, int32_t token);

 private:
  struct Slot {
    uint64_t pair = 0;
    int32_t token = none;
  };
  static constexpr size_t initial_slots = 1024;

  // The slot with the pair, or the free one where it belongs.
  size_t slot_of(uint64_t pair) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  size_t size_ = 0;
};

class BytePairEncoding {
 public:
  static constexpr int32_t byte_count = 256;

  // bytes[i] is the byte of token i; every byte occurs once.
  explicit BytePairEncoding(std::string_view bytes);

  // Adds a token that joins these two.  Throws if they are not tokens or have a merge.
  void add_merge(TokenPair pair);

  int32_t size() const { return static_cast<int32_t>(merges_.size()) + byte_count; }
  // The bytes of a token in [0, size()).
  std::string_view text(int32_t token) const;
  // The pair that a token from 256 on joins.
  TokenPair merge(int32_t token) const { return merges_.begin()[token - byte_count]; }
  int32_t of_byte(char byte) const { return of_byte_[static_cast<unsigned char>(byte)]; }

  // Appends the tokens of a piece.
  void encode(std::string_view piece, std::vector<int32_t>& tokens) const;

 private:
  void encode_short(std::string_view piece, std::vector<int32_t>& tokens) const;
  void encode_long(std::string_view piece, std::vector<int32_t>& tokens) const;

  int32_t of_byte_[byte_count];
  std::string texts_;         // all tokens' bytes, end to end
  std::vector<size_t> ends_;  // each token's end in texts_
  std::vector<TokenPair> merges_;
  PairTable pairs_;
};

}  // namespace spool
