#pragma once

// All ways to cut an op over a mesh, by itself: its operands are whole before it, and its results
// are after it.

#include <optional>
#include <string>
#include <vector>

#include "spool/autograd/sharding/conversions.h"
#include "spool/autograd/sharding/strategies.h"
#include "spool/planner/sharding/described_op.h"
#include "spool/planner/sharding/mesh_machine.h"

namespace spool {

// What ranks exchange of a value: "y", "dw", or "v*", what parts of an index give each other that
// the op joins itself.
struct ValueExchange {
  std::string value = {};
  Collective move = Collective::nothing;
  std::vector<int> axes = {};
  double bytes = 0;  // that a rank sends
};

struct OpStrategy {
  Strategy cut = {};
  std::vector<ValueExchange> forward = {}, backward = {};
  std::optional<double> seconds = {};  // forward and backward, with the exchanges
  std::optional<std::string> colossalai = {};

  double sent_bytes() const;
};

struct OpStrategies {
  std::string op = {}, notation = {};
  MeshAxes mesh = {};
  WholeOp whole = {};
  std::vector<OperandName> inputs = {}, outputs = {};  // outputs that have a gradient
  std::vector<OpStrategy> all = {};
  std::vector<StrategyOrReason> refused = {};

  // "n0", "k", "-": by axis.
  std::vector<std::string> cut_in_words(const CutIndices&) const;
};

// With a machine also the price of each: the op rehearsed alone, at the shapes of a rank, and its
// exchanges by the links.
OpStrategies op_strategies(const DescribedOp&, const MeshAxes&,
                           const std::optional<MeshMachine>& = {});

}  // namespace spool
