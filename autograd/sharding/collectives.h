#pragma once

// What the ranks along an axis do together, each with its part of a tensor.  Exchanges and kernels
// are enqueued; what they need beside their arguments is allocated in the name given, and the
// exchanges have another.
//
// Sums are SumRanks' (kernels/sum_ranks.h): in the order of the ranks, rounded once.  Results are
// written, or added to what is there, as the Grad says.

#include "spool/autograd/sharding/rank_group.h"
#include "spool/autograd/sharding/rank_pieces.h"

namespace spool {

class Collectives {
 public:
  Collectives(Stream& stream, const char* name, const char* exchange, const RankGroup& group)
      : stream_(stream), name_(name), exchange_(exchange), group_(group) {}

  // This rank's piece of what it has whole.
  void take(const View& whole, const RankPieces&, const Grad& own);
  // The whole, of which each rank has a piece.
  void gather(const View& own, const RankPieces&, const Grad& whole);
  // This rank's piece of the sum of what all have.
  void reduce_scatter(const View& summand, const RankPieces&, const Grad& own);
  // Cuts what it has by `split` among the ranks, and joins what they give by `join`.
  void all_to_all(const View& in, const RankPieces& split, const RankPieces& join, const Grad& out);
  // The sum of what all have; `out` may be in the memory of the summand.  One that is small, or
  // does not divide, is gathered, and each rank adds up all of it; of others each adds up a piece.
  void all_reduce(const View& summand, const Grad& out);
  // The same in place, on the queue of exchanges: the stream is to wait for it before it touches
  // the tensor.
  Begun begin_all_reduce(const View& tensor);

 private:
  int ranks() const { return group_.size(); }
  Tensor scratch(int64_t elements, DType);
  View piece(const View& all, int rank) const;
  View own_piece(const View& all) const { return piece(all, group_.coordinate()); }
  Tensor pack(const View&, const RankPieces&);
  bool is_gathered(const View& summand) const;
  void sum(const View& theirs, const View& own, const Grad& out, Stream&) const;

  Stream& stream_;
  const char *name_, *exchange_;  // never freed
  const RankGroup& group_;
};

}  // namespace spool
