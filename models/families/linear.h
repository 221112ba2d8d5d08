#pragma once

// A linear layer of a block.  Families apply all of their matrices through it, so whatever is added
// to each of them, or cuts them, is here.

#include <memory>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/autograd/parameter.h"

namespace spool {

// Low-rank adapters of the tensors that a weight has in files, which are rows of it.
struct LinearAdapter {
  Parameter *a = nullptr, *b = nullptr;
  std::vector<Range> columns = {};  // of the result, of each
  double scale = 1;
  float dropout = 0;

  LowRank low_rank() const {
    return {.a = *a, .b = *b, .columns = columns, .scale = scale, .dropout = dropout};
  }
};

struct Linear {
  Parameter* weight = nullptr;  // (O, K)
  Parameter* bias = nullptr;    // (O), or null
  std::shared_ptr<const LinearAdapter> adapter = {};

  // x (N.., K) -> (N.., O).
  Var operator()(const Var& x) const {
    if (!bias) return without_bias(x);
    return adapter ? linear(x, *weight, *bias, adapter->low_rank()) : linear(x, *weight, *bias);
  }
  // For a following op that adds the bias itself.
  Var without_bias(const Var& x) const {
    return adapter ? linear(x, *weight, adapter->low_rank()) : linear(x, *weight);
  }
};

}  // namespace spool
