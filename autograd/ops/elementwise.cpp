#include "spool/autograd/ops.h"
#include "spool/autograd/ops/map.h"
#include "spool/kernels/functors.h"

namespace spool {

Var sub(const Operand& a, const Operand& b) { return map(functors::Sub(), a, b); }
Var mul(const Operand& a, const Operand& b) { return map(functors::Mul(), a, b); }
Var div(const Operand& a, const Operand& b) { return map(functors::Div(), a, b); }

Var relu(const Operand& x) { return map(functors::Relu(), x); }
Var silu(const Operand& x) { return map(functors::Silu(), x); }
Var sigmoid(const Operand& x) { return map(functors::Sigmoid(), x); }
Var tanh(const Operand& x) { return map(functors::Tanh(), x); }
Var exp(const Operand& x) { return map(functors::Exp(), x); }
Var log(const Operand& x) { return map(functors::Log(), x); }
Var square(const Operand& x) { return map(functors::Square(), x); }

}  // namespace spool
