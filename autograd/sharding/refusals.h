#pragma once

// Why an op cannot be cut by a strategy, in sentences with the numbers and those that would do.

#include <string>

#include "spool/autograd/sharding/strategies.h"

namespace spool {

// An input or an output of an op.
struct WholeOperand {
  const Term& term;
  const WholeValue& value;
  bool is_output = false;
  size_t number = 0;
  std::string name = {};  // with its shape: "x (4, 4, 16)"
};
WholeOperand whole_operand(const WholeOp&, size_t number, bool is_output);

// How many leading dimensions of a value may become one: those of a first index that is cut as one.
int joinable_rows(const Term&, const WholeValue&, const CutIndices&, const MeshAxes&, Rows);

std::string why_of_missing_dimension(const WholeOperand&, const CutIndex&);
std::string why_of_integers(const WholeOperand&, const CutIndex&);
// Of a value that has no local shape.
std::string why_of_size(const WholeOp&, const WholeOperand&, const Sharding&, const MeshAxes&,
                        int rows);
// Whether a dimension is cut in other parts than the op asks for, or than another that has the same
// index; empty: none is.
std::string why_of_parts(const WholeOp&, const CutIndices&, const MeshAxes&);

}  // namespace spool
