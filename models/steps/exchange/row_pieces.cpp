#include "spool/models/steps/exchange/row_pieces.h"

#include <algorithm>

#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

Buckets in_pieces(const std::vector<Parameter*>& parameters, int ranks) {
  std::vector<Range> whole;
  int64_t granules = 0;
  for (size_t i = parameters.size(); i-- > 0;) {
    whole.push_back({0, parameters[i]->data.numel()});
    granules += ceil_div(whole.back().size(), weights_granule);
  }
  const int64_t bucket = Buckets::usual_size(granules * weights_granule);
  return Buckets::of_size(whole, round_up(ceil_div(bucket, int64_t{ranks}), weights_granule));
}

}  // namespace

RowPieces::RowPieces(const std::vector<Parameter*>& parameters, int ranks)
    : ranks_(ranks),
      row_(in_pieces(parameters, ranks)),
      buckets_(ceil_div(std::ssize(row_.all()), int64_t{ranks})),
      pieces_(static_cast<size_t>(buckets_ * ranks)) {
  for (size_t p = 0; p < row_.all().size(); ++p) {
    for (const Buckets::Slice& s : row_.all()[p].slices) {
      pieces_[p].push_back({parameters.size() - 1 - s.part, s.elements, s.at});
    }
  }
}

const std::vector<OwnRow::Slice>& RowPieces::slices(int64_t bucket, int rank) const {
  return pieces_[static_cast<size_t>(bucket * ranks_ + rank)];
}

Range RowPieces::elements_of(int64_t bucket, int rank) const {
  const int64_t begin = (bucket * ranks_ + rank) * piece_elements();
  return {std::min(begin, elements()), std::min(begin + piece_elements(), elements())};
}

std::vector<OwnRow::Slice> RowPieces::own_slices(int rank) const {
  std::vector<OwnRow::Slice> own;
  for (int64_t b = 0; b < buckets_; ++b) {
    for (OwnRow::Slice s : slices(b, rank)) {
      s.at += b * piece_elements();
      own.push_back(s);
    }
  }
  return own;
}

}  // namespace spool
