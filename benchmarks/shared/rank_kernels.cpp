#include "rank_kernels.h"

#include <string>

#include "spool/kernels/cross_entropy_part.h"
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

// The statistics of all parts: their largest logit is 1, and the sum of exponentials 100.
View some_statistics(Arguments& a, const Shape& shape) {
  std::vector<float> all(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 100 : 0;
  return View(a.with_values(all).data(), {shape, DType::f32});
}

// The loss of GPT-2's vocabulary in parts, on one of several ranks: with one it has all columns, as
// cross_entropy/gradient does.
void add_loss_in_parts(Bench& b, DType t, const std::string& suffix) {
  constexpr int64_t vocabulary = 50304;
  for (const int64_t ranks : {1, 8}) {
    const Shape logits{b.N, vocabulary / ranks}, statistics{ranks, b.N, 3}, rows{b.N};
    const VocabularyPart columns{.first = 0, .whole = vocabulary};
    const std::string of_ranks = suffix + "/ranks:" + std::to_string(ranks);
    b.add("cross_entropy_statistics" + of_ranks, [=](Arguments& a) {
      return CrossEntropyStatistics{.statistics = a.make({rows[0], 3}, DType::f32),
                                    .logits = a.make(logits, t),
                                    .targets = a.make(rows, DType::i32),
                                    .part = columns};
    });
    b.add("cross_entropy_joined/gradient" + of_ranks, [=](Arguments& a) {
      return CrossEntropyJoined{.logits = a.make(logits, t),
                                .statistics = some_statistics(a, statistics),
                                .targets = a.make(rows, DType::i32),
                                .losses = a.make(rows, DType::f32),
                                .gradient = true,
                                .part = columns};
    });
  }
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
    add_loss_in_parts(b, t, suffix);
  }
}

}  // namespace spool::benchmarks
