// Public: one of the headers of docs/public-headers.md.
#pragma once

// Stochastic gradient descent over all parameters of a model, with momentum, weight decay and
// gradients clipped by their global norm.  The arithmetic is in kernels/sgd.h.  See optimizer.h for
// the order of a step, masters, failures and where the state may be, and parameter_groups.h for the
// rate and decay of each parameter.
//
// With momentum, the state has one row: momentum.

#include <vector>

#include "spool/models/optimizers/optimizer.h"

namespace spool {

struct SgdSettings {
  double momentum = 0;    // in [0, 1); 0: none
  bool nesterov = false;  // Nesterov's form of momentum
  double decay = 0;
  double clip = 0;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  std::vector<ParameterGroup> groups = {};
};

std::unique_ptr<const UpdateRule> make_rule(const SgdSettings&);

class SgdOptimizer final : public Optimizer {
 public:
  SgdOptimizer(std::vector<Parameter*> parameters, const SgdSettings& settings, Stream& stream,
               const OptimizerMemory& memory = {})
      : Optimizer(make_rule(settings), std::move(parameters), update_settings(settings), stream,
                  memory) {}
};

}  // namespace spool
