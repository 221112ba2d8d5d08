#pragma once

// What ranks that share micro-batches do of a program, op by op, for reports: how each op is cut
// along each axis, how its parameters are stored, and what moves for it.

#include <cstdint>
#include <string>
#include <vector>

#include "spool/autograd/sharding/shard_program.h"
#include "spool/planner/sharding/mesh_machine.h"

namespace spool {

// Along one axis.
struct CutOfOp {
  std::string by = {};  // "rows", "heads"; empty: each rank does all
  bool is_rows = false;
  bool is_summed = false;  // each rank has a summand of what the op makes
  int64_t each = 0;        // of what a rank has, such as 10 heads; 0 without a cut
  bool operator==(const CutOfOp&) const = default;
};

struct MoveOfOp {
  int axis = 0;
  Collective what = Collective::nothing;
  bool is_backward = false;
  std::string value = {};  // "ln_1", "attn.c_attn.weight"
  double bytes = 0;        // that a rank sends
  double seconds = 0;      // by the link of the axis
  bool operator==(const MoveOfOp&) const = default;
};

struct StoredParameter {
  std::string name = {};
  std::vector<State> along = {};  // by axis
  bool operator==(const StoredParameter&) const = default;
};

struct SharedOp {
  std::string name = {};
  std::vector<CutOfOp> along = {};  // by axis
  std::vector<StoredParameter> parameters = {};
  // Those that send something: of what it reads, and of a sum that it makes.
  std::vector<MoveOfOp> moves = {};
  bool operator==(const SharedOp&) const = default;
};

// Ops of layers that all do the same, or ops beside the layers.
struct SharedPart {
  std::string name = {};  // "layers 0–35", "after the layers"
  size_t layers = 0;      // 0: ops beside them
  std::vector<SharedOp> ops = {};
};

// In the program's order, layers that do the same at the first of them.  A model without layers
// is one part.
std::vector<SharedPart> shared_ops(const Program&, const Assignment&, const MeshRanks&,
                                   const MeshMachine&);

}  // namespace spool
