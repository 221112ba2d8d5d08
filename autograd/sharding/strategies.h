#pragma once

// How an op can be cut over a mesh, as its index notation says; no op has a table of its own.  Each
// axis of the mesh is given an index, or none.  Along an axis that cuts an index
//
//   an input or an output that has it   is cut
//   an input that lacks it              is shared; whole if it is of integers
//   an input marked with +              is partial, if no output has the index
//   an output that lacks it             is partial; whole if the op joins it (*)
//
// Along an axis without an index all are whole.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "spool/autograd/sharding/sharding.h"
#include "spool/autograd/sharding/whole_op.h"

namespace spool {

// Rows are the dimensions that a first index stands for.
enum class Rows {
  joined,  // are cut as one
  each,    // each can be cut by itself
};

// The index that an axis cuts; ' ': none.
struct CutIndex {
  char index = ' ';
  int8_t dimension = 0;  // of those that a first index stands for
  bool operator==(const CutIndex&) const = default;
};
using CutIndices = std::array<CutIndex, MeshAxes::max_axes>;

struct Strategy {
  CutIndices axes = {};
  std::vector<Sharding> inputs = {}, outputs = {};
};

// A strategy, or why there is none: a sentence with the numbers, and the sizes that would divide.
struct StrategyOrReason {
  CutIndices axes = {};
  std::optional<Strategy> strategy = {};
  std::string why = {};
};
StrategyOrReason strategy(const WholeOp&, const CutIndices&, const MeshAxes&, Rows = Rows::joined);
// Of all assignments of indices to axes, in a fixed order; the first is idle.
std::vector<StrategyOrReason> all_strategies(const WholeOp&, const MeshAxes&, Rows = Rows::joined);

// What is summed over ranks if every value is whole before the op and after it, and what is not cut
// stays whole: an output that is partial, in forward; the gradient of an input that is shared, in
// backward.  An input that is partial is added on the first rank alone: its gradient is whole.
struct Sum {
  bool is_output = false;
  size_t operand = 0;  // which input or output
  std::vector<int> axes = {};
  double bytes = 0;  // that a rank sends
};
struct Sums {
  std::vector<Sum> forward = {}, backward = {};
  std::vector<Sum> on_one_rank = {};  // of no bytes
};
Sums sums_of(const WholeOp&, const Strategy&, const MeshAxes&, Rows = Rows::joined);

// "n", or "-": none; with Rows::each "n0" and so on for an index of several dimensions.
std::string in_words(const CutIndex&, const WholeOp&, Rows = Rows::joined);
// "no": rows along the first axis, output channels along the second.
std::string in_words(const Strategy&, const WholeOp&, const MeshAxes&, Rows = Rows::joined);

}  // namespace spool
