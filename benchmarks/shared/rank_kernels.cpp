#include "rank_kernels.h"

#include <string>

#include "spool/kernels/granule_hashes.h"
#include "spool/kernels/sum_ranks.h"

namespace spool::benchmarks {
namespace {

constexpr int64_t bucket = int64_t{4} << 20, parts = 16, part = bucket / parts;

// What the other ranks sent, with this rank the first.
decltype(SumRanks::pieces) sent_pieces(Arguments& a, int ranks) {
  decltype(SumRanks::pieces) pieces{nullptr};
  while (pieces.size() < ranks) pieces.add(a.make({bucket}, DType::f32).data());
  return pieces;
}

// Gradients of 16 parameters, added to what is there, as in every micro-batch but the first.
decltype(SumRanks::slices) bucket_slices(Arguments& a, DType own_type) {
  const View out = a.make({parts, part}, DType::f32), own = a.make({parts, part}, own_type);
  decltype(SumRanks::slices) slices;
  for (int64_t p = 0; p < parts; ++p) {
    const Range row{p, p + 1};
    slices.add({.out = add_to(out.slice(row)), .own = own.slice(row), .at = p * part});
  }
  return slices;
}

}  // namespace

void add_rank_kernels(Bench& b) {
  for (const DType t : {DType::f32, DType::bf16}) {
    const std::string suffix = std::string("/") + name(t);
    for (const int ranks : {2, 4, 8}) {
      b.add("sum_ranks" + suffix + "/ranks:" + std::to_string(ranks), [=](Arguments& a) {
        return SumRanks{.slices = bucket_slices(a, t), .pieces = sent_pieces(a, ranks)};
      });
    }
    b.add("granule_hashes" + suffix, [=](Arguments& a) {
      return GranuleHashes{.out = a.make({2 * bucket / norm_granule}, DType::i32),
                           .x = {a.make({bucket}, t)}};
    });
  }
}

}  // namespace spool::benchmarks
