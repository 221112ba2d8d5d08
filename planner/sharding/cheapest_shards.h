#pragma once

// The cheapest way to cut a program, by a dynamic programme over its nodes.  Its states are the
// shardings, as their ops make them, of the values that are still to be read.  It is exact for
// these prices:
//
//   an op             ShardPrices::of_op()
//   an input          given whole, or as the problem says; brought to where each op reads it.  One
//                     that an op changes is given as that op reads it, and costs its bytes
//   an op's output    brought from where it is made to where each op reads it.  Of several ops that
//                     read it in one sharding each pays, though shard() moves it once: a state for
//                     all that was moved would be too large
//   a parameter       stored as is best for the op that reads it; one that several ops read is
//                     tried in every storage that one of them may want.  Of several such parameters
//                     each is tried in turn, until none becomes cheaper, which need not be the best
//
// Of equally cheap ways the first is taken, in the order of ShardPrices::ways().  [Bellman,
// "Dynamic Programming", 1957; for cuts of ops: Zheng et al., "Alpa", 2022]

#include <map>
#include <vector>

#include "spool/planner/sharding/shard_prices.h"

namespace spool {

struct ShardProblem {
  std::vector<std::vector<size_t>> allowed = {};  // by node, of its ways
  std::map<ValueId, Sharding> stored = {};        // parameters and inputs that are stored so
  double seconds_per_byte = 0;
};

// With the storage of each parameter in `given`.  Throws if there is no way, or if values that wait
// to be read have too many shardings together.
Assignment cheapest_shards(ShardPrices&, const ShardProblem&);

}  // namespace spool
