#pragma once

// An op and the values that it is applied to, as all ranks together have them.

#include <map>
#include <string>
#include <vector>

#include "spool/autograd/notation/notation.h"
#include "spool/autograd/program.h"
#include "spool/autograd/sharding/sharding.h"

namespace spool {

struct WholeOp {
  Notation notation = {};
  std::vector<WholeValue> inputs = {}, outputs = {};
  // For sentences: names of the inputs and outputs, "input 0" for one without, and what an index
  // counts, such as {'h', "key heads"}.
  std::vector<std::string> input_names = {}, output_names = {};
  std::map<char, std::string> counted = {};
};

// The parts of each dimension are found once for all ops, by joining the dimensions that an index
// makes equal, so that the parts of packed heads reach the weight and the bias behind them.  Of two
// ops that ask for different parts of a dimension, the first has its way.
std::vector<WholeValue> whole_values(const Program&);
WholeOp whole_op(const Program&, NodeId, const std::vector<WholeValue>&);
// An op by itself.
WholeOp whole_op(const Notation&, const Specs& inputs, const Specs& outputs);

// The parts that a term asks for its dimension of this index; nothing if the dimension is the index
// itself, or does not divide into the units of its parts.
std::optional<DimensionParts> asked_parts(const Term&, char index, const Shape&);

}  // namespace spool
