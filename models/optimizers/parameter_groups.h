#pragma once

// Groups of parameters that an optimizer treats differently: with another learning rate or weight
// decay.
//
//   auto is_large = [](const Parameter& p) { return p.whole().shape[0] > 1000; };
//   AdamWSettings settings{.groups = {{.has = is_large, .rate = 0.1, .decay = 0}}};
//
// A parameter belongs to the first group that has it.  Without a group its rate is 1, and it decays
// by the optimizer's decay if it has two or more dimensions, so biases and norms do not.  Groups
// are asked once, when the optimizer is constructed.
//
// A parameter at rate 0 keeps its value; its gradient counts in the norm and updates its state.
// One that is not trainable has no gradient, so it and its state stay as they are: leave it out of
// the optimizer's parameters to save the memory of its state.

#include <functional>
#include <optional>
#include <vector>

#include "spool/autograd/parameter.h"

namespace spool {

struct ParameterGroup {
  std::function<bool(const Parameter&)> has;
  double rate = 1;                   // a factor of the step's learning rate
  std::optional<double> decay = {};  // of all of its parameters; absent: as without a group
};

// The rate and decay of one parameter.
struct ParameterRate {
  float rate = 1, decay = 0;
};

// One element per parameter.  Throws if a number is negative or not finite, or if a group has no
// parameter.  `who`, the optimizer, begins the message.
std::vector<ParameterRate> rates_of(const std::vector<Parameter*>&,
                                    const std::vector<ParameterGroup>&, double decay,
                                    const char* who);

}  // namespace spool
