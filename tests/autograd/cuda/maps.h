#pragma once

// What maps.cu defines: map() of a functor, in a CUDA source.

#include "spool/autograd/tape.h"

namespace spool::testing {

Var mul_add(const Operand& a, const Operand& b, const Operand& c);
Var four_inputs(const Operand& a, const Operand& b, const Operand& c, const Operand& d);

}  // namespace spool::testing
