#pragma once

// From the program of a whole model to that of a rank: each op on what the rank has of its inputs,
// and the moves between, in the order of the whole.  It is plain data, the same on all ranks but
// for their coordinates, and is applied to a tape as a model's ops are: what works on tapes works
// on it.
//
// A value is converted to a sharding once, for all that read it so; its gradient is then summed
// over ranks once, after the last of them.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/sharding/conversions.h"
#include "spool/autograd/sharding/flat_parts.h"
#include "spool/autograd/sharding/rank_group.h"
#include "spool/autograd/sharding/strategies.h"
#include "spool/autograd/tape.h"

namespace spool {

// How each op is cut, and what a rank is given of parameters and inputs.
struct Assignment {
  std::vector<Strategy> nodes = {};
  // By value.  A parameter that is left out is stored as its last reader wants it, shared along an
  // axis along which all readers share it: its gradient is to be summed after backward.  An input
  // that is left out is given whole, or, if an op changes it, as that op wants it.
  std::map<ValueId, Sharding> given = {};
  std::map<ValueId, Sharding> results = {};  // values that are wanted in a sharding at the end
  // Whether large parameters that are trained are stored in flat parts (flat_parts.h) of those
  // ranks of other meshes that have this one's place, if there are any.
  bool in_flat_parts = false;
  // Of each axis: values move by the paths that are cheapest by these.  None: by Link{}.
  std::vector<Link> links = {};
};

struct ShardValue {
  ValueId whole = -1;  // of which it is a part
  Sharding sharding = {};
  int parameter = -1, input = -1;  // positions among those of the program; -1: an op's output
  int last_reader = -1;            // position of a node; -1: none
};

struct ShardNode {
  std::shared_ptr<const Op> op;
  std::vector<int> inputs = {}, outputs = {};  // positions among the values
  NodeId whole = -1;                           // the op that it is a part of, or moves to
  bool is_move = false;
};

struct ShardParameter {
  Name name = "parameter";
  Parameter* whole = nullptr;  // not to be dereferenced after the model is gone
  WholeValue value = {};
  Sharding stored = {};
  Spec spec = {};  // of what the rank has, once it is gathered
  std::optional<FlatParts> flat = {};
};

struct ShardProgram {
  std::vector<ShardValue> values = {};
  std::vector<ShardNode> nodes = {};
  std::vector<size_t> gathers = {};  // positions of nodes that gather parameters
  std::vector<ShardParameter> parameters = {};
  std::vector<ValueId> inputs = {};  // of the whole program, in its order
  std::vector<TapeScope> scopes = {};
  // Positions among the values: of an op's output, as it is made, and of each result.
  std::map<ValueId, int> made = {}, results = {};
  std::vector<std::shared_ptr<PartExchange>> exchanges = {};  // of its ops
};

// Inputs that some op changes (Op::writes()), such as caches.
std::set<ValueId> written_inputs(const Program&);

// The ranks outlive the program, and the program the tapes that it is applied to.
// Throws if no moves lead from one sharding to another that is wanted.
ShardProgram shard(const Program&, const Assignment&, const MeshRanks&, const MovePrice&);

// Applies it to a tape, with the rank's parts of parameters and inputs by their positions.  Returns
// the values at these positions.
std::vector<Var> apply(const ShardProgram&, Tape&, std::span<Parameter* const>,
                       std::span<const Var> inputs, std::span<const int> wanted);

}  // namespace spool
