#pragma once

// A linear layer of a block.  Families apply all of their matrices through it, so whatever is to be
// added to each of them, or cuts them, goes here.

#include "spool/autograd/ops.h"
#include "spool/autograd/parameter.h"

namespace spool {

struct Linear {
  Parameter* weight = nullptr;  // (O, K)
  Parameter* bias = nullptr;    // (O), or null

  // x (N.., K) -> (N.., O).
  Var operator()(const Var& x) const { return bias ? linear(x, *weight, *bias) : without_bias(x); }
  // For a following op that adds the bias itself.
  Var without_bias(const Var& x) const { return linear(x, *weight); }
};

}  // namespace spool
