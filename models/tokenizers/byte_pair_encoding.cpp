#include "spool/models/tokenizers/byte_pair_encoding.h"

#include <algorithm>

#include "spool/runtime/check.h"

namespace spool {

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
  check(table_.add(pair, size()), "byte-pair encoding: ", pair.left, " and ", pair.right,
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
  constexpr size_t few = 64;
  const auto join = [&](std::span<int32_t> parts) {
    for (size_t i = 0; i < piece.size(); ++i) parts[i] = of_byte(piece[i]);
    table_.join(parts, tokens);
  };
  if (piece.size() <= few) {
    int32_t parts[few];
    return join({parts, piece.size()});
  }
  std::vector<int32_t> parts(piece.size());
  join(parts);
}

}  // namespace spool
