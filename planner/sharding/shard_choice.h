#pragma once

// How a recorded program is cut over a mesh: a policy says what may be cut, and of that the
// cheapest is chosen (cheapest_shards.h).
//
//   none           nothing: all ranks do the same
//   rows           every op by rows, the first index of its notation, along every axis.  What is
//                  computed from parameters alone, or is one number, has no rows, and is not cut
//   megatron       along the last axis by anything but rows, and never whole, if all indices of
//                  the op divide: a product with a parameter; heads; and a table of tokens, by its
//                  vocabulary.  This is chosen first, as if there were no other axis; then, along
//                  the axes before it, whatever is cheapest.  A byte costs 1 ps.  [Shoeybi et al.,
//                  "Megatron-LM", 2019]
//   megatron-rows  the same, and what has neither heads nor a product with a parameter may be cut
//                  by rows.  [Korthikanti et al., "Reducing Activation Recomputation in Large
//                  Transformer Models", 2022]
//   auto           whatever is cheapest.  A byte costs 1 ps
//
// Along an axis of one rank nothing is cut.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "spool/autograd/sharding/shard_program.h"
#include "spool/planner/sharding/mesh_machine.h"
#include "spool/planner/sharding/shard_prices.h"
#include "spool/runtime/names.h"

namespace spool {

enum class ShardPolicy : uint8_t { none, rows, megatron, megatron_rows, automatic };
template <>
inline constexpr std::array enumerator_names<ShardPolicy>{"none", "rows", "megatron",
                                                          "megatron-rows", "auto"};

// An op that is whole along an axis, as no index by which it may be cut there divides.
struct UncutOp {
  NodeId node = -1;
  int axis = 0;
  std::string why = {};  // with the numbers, and those that would do
};

struct ShardChoice {
  Assignment how = {};  // with the storage of each parameter in `given`
  double seconds = 0;   // of the prices
  int64_t bytes = 0;    // of them, on a rank
  std::vector<UncutOp> uncut = {};
};

// Refuses, of the settings shard and mesh, an axis along which no op can be cut, with what does not
// divide.
void check_axes(const ShardPrices&);

// The cheapest of all ways, with another price of a byte than a policy has.
ShardChoice cheapest_choice(ShardPrices&, double seconds_per_byte);

// `stored`: how parameters and caches are stored already, as for an evaluation of a model in
// training; all others are chosen.  The same on all ranks.  Throws, of the settings shard and mesh,
// if `rows` do not divide, or if nothing can be cut along some axis, where nothing is stored yet.
ShardChoice choose_shards(const Program&, const MeshAxes&, const MeshMachine&, ShardPolicy,
                          const std::map<ValueId, Sharding>& stored = {});

}  // namespace spool
