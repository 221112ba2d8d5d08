#include "spool/models/steps/exchange/row_pieces.h"

#include <algorithm>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

bool is_stored_flat(const Parameter& p) { return p.part && p.part->flat(); }

// Elements of a piece where these parameters follow one another.
int64_t piece_of(const std::vector<Range>& parameters, int ranks) {
  int64_t granules = 0;
  for (const Range& p : parameters) granules += ceil_div(p.size(), weights_granule);
  const int64_t bucket = Buckets::usual_size(granules * weights_granule);
  return round_up(ceil_div(bucket, int64_t{ranks}), weights_granule);
}

}  // namespace

RowPieces::RowPieces(const std::vector<Parameter*>& parameters, int ranks) : ranks_(ranks) {
  std::vector<size_t> others;
  for (size_t i = parameters.size(); i-- > 0;) {
    is_stored_flat(*parameters[i]) ? add_flat(parameters, i) : others.push_back(i);
  }
  add_together(parameters, others);
}

void RowPieces::add_flat(const std::vector<Parameter*>& parameters, size_t parameter) {
  const FlatParts& parts = parameters[parameter]->part->flat()->parts;
  for (int64_t b = 0; b < parts.buckets(); ++b) {
    Bucket bucket{.piece = parts.piece_elements(), .is_flat = true};
    for (int r = 0; r < ranks_; ++r) {
      const Range piece = parts.piece(b, r);
      bucket.pieces.emplace_back();
      if (piece.size() > 0) bucket.pieces.back().push_back({parameter, piece, 0});
    }
    add(std::move(bucket));
  }
}

void RowPieces::add_together(const std::vector<Parameter*>& parameters,
                             const std::vector<size_t>& some) {
  std::vector<Range> elements;
  for (const size_t i : some) elements.push_back({0, parameters[i]->gathered().shape.numel()});
  const Buckets row = Buckets::of_size(elements, piece_of(elements, ranks_));
  for (size_t p = 0; p < row.all().size(); p += static_cast<size_t>(ranks_)) {
    Bucket bucket{.piece = row.bucket_elements()};
    for (size_t r = p; r < p + static_cast<size_t>(ranks_); ++r) {
      bucket.pieces.emplace_back();
      if (r >= row.all().size()) continue;
      for (const Buckets::Slice& s : row.all()[r].slices) {
        bucket.pieces.back().push_back({some[s.part], s.elements, s.at});
      }
    }
    add(std::move(bucket));
  }
}

void RowPieces::add(Bucket bucket) {
  bucket.begin = own_;
  own_ += bucket.piece;
  largest_piece_ = std::max(largest_piece_, bucket.piece);
  buckets_.push_back(std::move(bucket));
}

int64_t RowPieces::bucket_of(int64_t own_element) const {
  const auto after = std::ranges::upper_bound(buckets_, own_element, {}, &Bucket::begin);
  return after - buckets_.begin() - 1;
}

std::vector<OwnRow::Slice> RowPieces::own_slices(int rank) const {
  std::vector<OwnRow::Slice> own;
  for (int64_t b = 0; b < buckets(); ++b) {
    for (OwnRow::Slice s : slices(b, rank)) {
      s.at += begin_of(b);
      own.push_back(s);
    }
  }
  return own;
}

}  // namespace spool
