// A CUDA source that applies functors with map(), as research code would.

#include "tests/autograd/cuda/maps.h"

#include "tests/autograd/samples/functors.h"

namespace spool::testing {

Var mul_add(const Operand& a, const Operand& b, const Operand& c) { return map(MulAdd(), a, b, c); }

Var four_inputs(const Operand& a, const Operand& b, const Operand& c, const Operand& d) {
  return map(FourInputs{.scale = 0.5}, a, b, c, d);
}

}  // namespace spool::testing
