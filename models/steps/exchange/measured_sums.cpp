#include "spool/models/steps/exchange/measured_sums.h"

#include <algorithm>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/models/steps/exchange/row_pieces.h"

namespace spool {
namespace {

using Slices = std::vector<OwnRow::Slice>;

int64_t elements_of(const Slices& slices) {
  int64_t sum = 0;
  for (const OwnRow::Slice& s : slices) sum += s.elements.size();
  return sum;
}

// The first rank's slices of a bucket that has the most elements.
const Slices& most_slices(const RowPieces& pieces) {
  const Slices* most = &pieces.slices(0, 0);
  for (int64_t b = 1; b < pieces.buckets(); ++b) {
    const Slices& slices = pieces.slices(b, 0);
    if (elements_of(slices) > elements_of(*most)) most = &slices;
  }
  return *most;
}

// Rows of one tensor: a piece of each rank's gradients, the first of which is this one's own, and
// their sum.
class BucketSums {
 public:
  BucketSums(const std::vector<Parameter*>& trained, int ranks, Stream& stream)
      : stream_(stream),
        pieces_(trained, ranks),
        slices_(most_slices(pieces_)),
        rows_({Shape{ranks + 1, pieces_.piece_elements()}, accumulator(trained[0]->data.dtype())},
              stream, {.name = "sums to measure", .purpose = Purpose::exchange}) {
    launch(Fill{.out = rows_, .value = 1}, stream_);  // numbers such as gradients are, not any bits
  }

  void launch_one(bool is_in_place, bool accumulates) {
    SumRanks kernel;
    for (int r = 0; r < pieces_.ranks(); ++r) kernel.pieces.add(r == 0 ? nullptr : row(r).data());
    const auto launch_list = [&] {
      if (kernel.slices.size() > 0) launch(kernel, stream_);
      kernel.slices = {};
    };
    for (const OwnRow::Slice& s : slices_) {
      if (kernel.slices.full()) launch_list();
      const Range at{s.at, s.at + s.elements.size()};
      const View own = row(0).slice_elements(at);
      const View sum = is_in_place ? own : row(pieces_.ranks()).slice_elements(at);
      kernel.slices.add({.out = Grad(sum, accumulates), .own = own, .at = s.at});
    }
    launch_list();
  }

 private:
  View row(int64_t r) const { return rows_.slice({r, r + 1}).view(); }

  Stream& stream_;
  RowPieces pieces_;
  const Slices& slices_;
  Tensor rows_;
};

}  // namespace

void launch_sums(const std::vector<Parameter*>& trained, const StepConfig& of_ranks,
                 Stream& stream) {
  const bool is_in_place = of_ranks.zero < 2;
  if (trained.empty() || of_ranks.replicas() < (is_in_place ? 2 : 1)) return;
  BucketSums sums(trained, of_ranks.replicas(), stream);
  sums.launch_one(is_in_place, /*accumulates=*/false);
  const bool adds = !is_in_place && of_ranks.micro_batches_of_rank() > 1;
  if (adds) sums.launch_one(is_in_place, /*accumulates=*/true);
}

}  // namespace spool
