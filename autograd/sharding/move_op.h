#pragma once

// A move (conversions.h) as an op: it is on the tape like any other, so what works on ops, such as
// recomputation, chunks and plans, works on what ranks exchange.  Where nothing moves the output is
// a view.  Sums are SumRanks' (kernels/sum_ranks.h): in the order of the ranks, rounded once.

#include <memory>

#include "spool/autograd/op.h"
#include "spool/autograd/sharding/conversions.h"
#include "spool/autograd/sharding/rank_group.h"

namespace spool {

// From what a rank has of a value in this sharding to what it has after the move.  The ranks
// outlive the op.  `what`, for the names of its exchanges in traces and errors: which value it is,
// as in "all-reduce along tensor, of the output of linear (node 7)".
std::shared_ptr<const Op> move_op(const WholeValue&, const Sharding& from, const Move&,
                                  const MeshRanks&, const std::string& what = {});

}  // namespace spool
