#include "spool/autograd/sharding/flat_parts.h"

#include <algorithm>

#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t max_bucket = int64_t{4} << 20;  // elements

// Of buckets that are about as large as each other.
int64_t piece_of(int64_t elements, int ranks) {
  const int64_t pieces = ceil_div(elements, max_bucket) * ranks;
  return round_up(ceil_div(elements, pieces), weights_granule);
}

}  // namespace

FlatParts::FlatParts(int64_t elements, int ranks)
    : elements_(elements),
      ranks_(ranks),
      buckets_(ceil_div(elements, piece_of(elements, ranks) * ranks)),
      piece_(piece_of(elements, ranks)) {}

Range FlatParts::piece(int64_t bucket, int rank) const {
  const int64_t begin = (bucket * ranks_ + rank) * piece_;
  return {std::min(begin, elements_), std::min(begin + piece_, elements_)};
}

}  // namespace spool
