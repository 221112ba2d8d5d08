#pragma once

// One table of small applications of every op.  op_test.cpp checks the same properties on each, so
// a new op gets its tests by an entry here.

#include <functional>
#include <string>
#include <vector>

#include "spool/autograd/tape.h"

namespace spool::testing {

struct SampleInput {
  Shape shape = {};
  int32_t below = 0;          // above 0: i32, uniform in [0, below), and no gradient
  bool parameter = false;     // given to the op as a Parameter
  double deviation = 1;       // standard, of its normal numbers
  int32_t ignored_every = 0;  // above 0: every ignored_every-th integer is -100
};

struct OpSample {
  std::string name;
  std::vector<SampleInput> inputs;
  // The outputs that have a gradient.
  std::function<std::vector<Var>(const std::vector<Operand>&)> apply;
  int chunks = 1;  // maximum to try
};

const std::vector<OpSample>& op_samples();

}  // namespace spool::testing
