// Public: one of the headers of docs/public-headers.md.
#pragma once

// A program is what a tape has recorded, as plain data: ops (nodes) and values in order of
// execution, and the scopes and regions that group them.  It has no tensors and nothing of the
// tape's machinery, so planners and reports read it without either, also after its tape is gone.
// Position i of a program is position i of a Plan.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spool/autograd/engine/few.h"
#include "spool/autograd/engine/id_table.h"
#include "spool/autograd/engine/recycled.h"
#include "spool/autograd/op.h"
#include "spool/autograd/parameter.h"
#include "spool/autograd/plan.h"

namespace spool {

// Positions in the program's lists of regions and scopes; -1: none.
using RegionId = int32_t;
using ScopeId = int32_t;

struct Value {
  Spec spec = {};
  NodeId producer = -1;            // -1: a parameter or an input
  Parameter* parameter = nullptr;  // not to be dereferenced after the model is gone
  Parameter* trains = nullptr;     // whose gradient is that of the value; the same, or gathered
  int32_t number = -1;             // of the parameter in Parameters; -1: it is none of those
  bool needs_grad = false;
  bool is_observed = false;  // the caller took its tensor, or began backward at it
};

struct Node {
  std::shared_ptr<const Op> op;  // the tapes of chunks share it
  Few<ValueId> inputs = {}, outputs = {};
  Few<ValueId> saves = {};  // what its backward reads
  int chunks = 1;
  RegionId region = -1;  // the innermost that it is a part of; see Program::chunked_region()
  int runs = 0;          // of its op's forward() on this tape so far, recomputations included
};

// Consecutive nodes that are recomputed in backward, as far as backward reads what they compute, or
// that run in chunks.
struct TapeRegion {
  NodeId first = 0, last = -1;  // last is known once it is closed
  RegionId parent = -1;
  bool one_op = false;  // made for a single node of which some outputs are to be recomputed
  int chunks = 1;
  std::vector<ValueId> leaves = {};  // as in Region
};

// A scope is ops that belong together, such as a layer.  Plans and reports may refer to it, and the
// caller may decide by hand what becomes of its values.
struct ScopeOptions {
  Name name = "segment";
  bool recompute = false;       // recompute what is computed in it; see checkpoint()
  bool offload_inputs = false;  // offload what is computed before it, or an input, and saved in it
  bool offload_inside = false;  // offload what is computed in it and saved
};

// A scope, with its place on the tape.
struct TapeScope {
  ScopeOptions options = {};
  NodeId first = 0, last = -1;  // last is known once it is closed
  ScopeId parent = -1;
  RegionId region = -1;  // the one it opened
  // A checkpoint that lets backward recompute nothing: the values that backward reads are computed
  // before the checkpoint, or saved by an op after it.
  bool frees_nothing = false;

  // Outermost scopes are the blocks of a model.
  bool is_block() const { return parent < 0 && last >= first; }
};

struct Program {
  Recycled<IdTable<NodeId, Node>> nodes;
  Recycled<IdTable<ValueId, Value>> values;
  IdTable<RegionId, TapeRegion> regions;  // by first node, an outer one before those in it
  IdTable<ScopeId, TapeScope> scopes;     // in the order they were opened
  std::vector<ScopeId> open_scopes;       // the innermost last

  // Whether the region has begun when the value is computed; for a region in chunks, whether the
  // value is computed in its chunks.
  bool is_inside(RegionId r, ValueId v) const {
    const NodeId producer = values[v].producer;
    if (regions[r].chunks > 1) return producer >= 0 && nodes[producer].region == r;
    return producer >= regions[r].first;
  }
  // The region in chunks that the node is a part of; -1: none, also if the node lies in one but
  // runs once, outside of its chunks.
  RegionId chunked_region(NodeId id) const {
    const RegionId r = nodes[id].region;
    return r >= 0 && regions[r].chunks > 1 ? r : -1;
  }
  // Which inputs of the node need a gradient.
  Needs needs(NodeId id) const {
    Needs needs;
    const Few<ValueId>& inputs = nodes[id].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (values[inputs[k]].needs_grad) needs.set(static_cast<int>(k));
    }
    return needs;
  }
  // The name of the op that computes the value, or "input".
  const char* producer_name(ValueId v) const {
    const NodeId producer = values[v].producer;
    return producer < 0 ? "input" : nodes[producer].op->name();
  }
};

// The model's blocks, in order.
std::vector<TapeScope> blocks_of(const Program&);

// A sentence for each checkpoint that frees nothing though backward needs its ops: which one, and
// why.
std::vector<std::string> idle_checkpoints(const Program&);

}  // namespace spool
