#pragma once

// What maps.cu defines: map() of functors in a CUDA source, by which the samples that apply them in
// other sources run on cuda, too.

#include "spool/autograd/tape.h"

namespace spool::testing {

Var mul_add(const Operand& a, const Operand& b, const Operand& c);
Var four_inputs(const Operand& a, const Operand& b, const Operand& c, const Operand& d);

}  // namespace spool::testing
