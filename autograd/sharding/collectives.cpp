#include "spool/autograd/sharding/collectives.h"

#include "spool/kernels/elementwise.h"
#include "spool/kernels/sum_ranks.h"

namespace spool {

Tensor Collectives::scratch(int64_t elements, DType type) {
  const Label label{.name = Name::never_freed(name_), .purpose = Purpose::workspace};
  return {{Shape{elements}, type}, stream_, label};
}

View Collectives::piece(const View& all, int rank) const {
  const int64_t each = all.numel() / ranks();
  return all.slice_elements({rank * each, (rank + 1) * each});
}

// The pieces of all ranks one after another; absent where they are so in the tensor.
Tensor Collectives::pack(const View& tensor, const RankPieces& pieces) {
  if (pieces.are_in_order(tensor.shape())) return {};
  Tensor packed = scratch(tensor.numel(), tensor.dtype());
  pieces.pack(stream_, packed.view(), tensor, {0, ranks()}, ranks());
  return packed;
}

void Collectives::sum(const View& theirs, const View& own, const Grad& out, Stream& on) const {
  SumRanks kernel{.sent = own.dtype()};
  for (int r = 0; r < ranks(); ++r) {
    kernel.pieces.add(r == group_.coordinate() ? nullptr : piece(theirs, r).data());
  }
  kernel.slices.add({.out = out, .own = own});
  launch(kernel, on);
}

void Collectives::take(const View& whole, const RankPieces& pieces, const Grad& own) {
  const int64_t rank = group_.coordinate();
  pieces.pack(stream_, own, whole, {rank, rank + 1}, ranks());
}

void Collectives::gather(const View& own, const RankPieces& pieces, const Grad& whole) {
  const bool in_place = !whole.accumulate && whole.view.dtype() == own.dtype() &&
                        pieces.are_in_order(whole.view.shape());
  if (in_place) return group_.all_gather(whole.view, own, stream_, exchange_);
  const Tensor packed = scratch(own.numel() * ranks(), own.dtype());
  group_.all_gather(packed, own, stream_, exchange_);
  pieces.unpack(stream_, whole, packed, ranks());
}

void Collectives::reduce_scatter(const View& summand, const RankPieces& pieces, const Grad& own) {
  const Tensor packed = pack(summand, pieces);
  const View given = packed ? packed.view() : summand;
  const Tensor theirs = scratch(given.numel(), given.dtype());
  group_.all_to_all(theirs, given, stream_, exchange_);
  sum(theirs, own_piece(given), own, stream_);
}

void Collectives::all_to_all(const View& in, const RankPieces& split, const RankPieces& join,
                             const Grad& out) {
  const Tensor packed = pack(in, split), theirs = scratch(in.numel(), in.dtype());
  const View given = packed ? packed.view() : in, own = own_piece(given);
  group_.all_to_all(theirs, given, stream_, exchange_);
  stream_.copy(own_piece(theirs).data(), own.data(), own.nbytes());
  join.unpack(stream_, out, theirs, ranks());
}

bool Collectives::is_gathered(const View& summand) const {
  constexpr size_t small = 64 * 1024;
  return summand.numel() % ranks() != 0 || summand.nbytes() < small;
}

void Collectives::all_reduce(const View& summand, const Grad& out) {
  if (is_gathered(summand)) {
    const Tensor all = scratch(summand.numel() * ranks(), summand.dtype());
    group_.all_gather(all, summand, stream_, exchange_);
    return sum(all, summand, out, stream_);
  }
  const Tensor theirs = scratch(summand.numel(), summand.dtype());
  group_.all_to_all(theirs, summand, stream_, exchange_);
  const bool in_place = !out.accumulate && out.view.dtype() == summand.dtype();
  const View sums = in_place ? out.view : theirs.view();
  sum(theirs, own_piece(summand), own_piece(sums), stream_);
  group_.all_gather(sums, own_piece(sums), stream_, exchange_);
  if (!in_place) launch(Add{.out = out, .a = sums}, stream_);
}

// What this rank has of its own in the memory of what others give is not read.
Begun Collectives::begin_all_reduce(const View& tensor) {
  const bool gathers = is_gathered(tensor);
  Begun begun{.workspace =
                  Tensor({Shape{tensor.numel() * (gathers ? ranks() : 1)}, tensor.dtype()}, stream_,
                         {.name = Name::never_freed(name_), .purpose = Purpose::exchange})};
  const View theirs = begun.workspace.view();
  Stream& queue = group_.queue().stream();
  group_.queue().follow(stream_);
  if (gathers) {
    group_.enqueue_all_gather(theirs, tensor, exchange_);
    sum(theirs, tensor, tensor, queue);
  } else {
    group_.enqueue_all_to_all(theirs, tensor, exchange_);
    sum(theirs, own_piece(tensor), own_piece(tensor), queue);
    group_.enqueue_all_gather(tensor, own_piece(tensor), exchange_);
  }
  begun.done = queue.record();
  return begun;
}

}  // namespace spool
