#pragma once

// Byte-pair encoding over bytes (Radford et al. 2019): the tokens of a piece's bytes are joined by
// merge_table.h.
//
// Tokens 0 to 255 are the bytes in some order; token 256 + i is the result of merge i, which joins
// two tokens with smaller ids.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/merge_table.h"

namespace spool {

class BytePairEncoding {
 public:
  static constexpr int32_t byte_count = 256;

  // bytes[i] is the byte of token i; every byte must occur once.
  explicit BytePairEncoding(std::string_view bytes);

  // Adds a token that joins these two.  Throws if they are not tokens, or already have a merge.
  void add_merge(TokenPair pair);

  int32_t size() const { return static_cast<int32_t>(merges_.size()) + byte_count; }
  // The bytes of a token in [0, size()).
  std::string_view text(int32_t token) const;
  // The two tokens that a token from 256 on joins.
  TokenPair merge(int32_t token) const { return merges_.begin()[token - byte_count]; }
  int32_t of_byte(char byte) const { return of_byte_[static_cast<unsigned char>(byte)]; }

  // Appends the tokens of a piece.
  void encode(std::string_view piece, std::vector<int32_t>& tokens) const;

 private:
  int32_t of_byte_[byte_count];
  std::string texts_;         // all tokens' bytes, end to end
  std::vector<size_t> ends_;  // each token's end in texts_
  std::vector<TokenPair> merges_;
  MergeTable table_;
};

}  // namespace spool
