#pragma once

// Groups of parameters that an optimizer treats differently: another learning rate, another weight
// decay.
//
//   auto is_large = [](const Parameter& p) { return p.data.shape()[0] > 1000; };
//   AdamWSettings settings{.groups = {{.has = is_large, .rate = 0.1, .decay = 0}}};
//
// The first group that has a parameter counts.  A parameter in no group has rate 1, and decays by
// the optimizer's decay if it has two or more dimensions, so biases and norms do not.  The groups
// are asked once, when the optimizer is made.
//
// A parameter at rate 0 keeps its value; its gradient counts in the norm and updates its state. One
// that is not trainable has no gradient, so it and its state stay as they are: leave it out of the
// optimizer's parameters to save the memory of its state.

#include <functional>
#include <optional>
#include <vector>

#include "spool/autograd/parameter.h"

namespace spool {

struct ParameterGroup {
  std::function<bool(const Parameter&)> has;
  double rate = 1;                   // times the step's learning rate
  std::optional<double> decay = {};  // of all of its parameters; absent: as in no group
};

// What a step does with one parameter.
struct ParameterRate {
  float rate = 1, decay = 0;
};

// Parallel to the parameters.  Throws if a number is negative or not finite, or a group has no
// parameter.  `who`, the optimizer, begins the sentence.
std::vector<ParameterRate> rates_of(const std::vector<Parameter*>&,
                                    const std::vector<ParameterGroup>&, double decay,
                                    const char* who);

}  // namespace spool
