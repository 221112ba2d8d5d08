#pragma once

// A linear layer of a block.  Families apply their matrices through it, so what is added to all of
// them, or cuts them, is added here.

#include "spool/autograd/ops.h"
#include "spool/autograd/parameter.h"

namespace spool {

struct Linear {
  Parameter* weight = nullptr;  // (O, K)
  Parameter* bias = nullptr;    // (O), or none

  // x (N.., K): (N.., O).
  Var operator()(const Var& x) const { return bias ? linear(x, *weight, *bias) : without_bias(x); }
  // For an op behind it that adds the bias itself.
  Var without_bias(const Var& x) const { return linear(x, *weight); }
};

}  // namespace spool
