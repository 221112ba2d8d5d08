// Public: one of the headers of docs/public-headers.md.
#pragma once

// The AdamW optimizer over all parameters of a model, with gradients clipped by their global norm.
// The arithmetic is in kernels/adamw.h.  See optimizer.h for the order of a step, masters, failures
// and where the state may be, and parameter_groups.h for the rate and decay of each parameter.
//
// The state has two rows: m and v, the running means of the gradient and of its square.

#include <vector>

#include "spool/models/optimizers/optimizer.h"

namespace spool {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  std::vector<ParameterGroup> groups = {};
};

std::unique_ptr<const UpdateRule> make_rule(const AdamWSettings&);

class AdamWOptimizer final : public Optimizer {
 public:
  AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings& settings, Stream& stream,
                 const OptimizerMemory& memory = {})
      : Optimizer(make_rule(settings), std::move(parameters), update_settings(settings), stream,
                  memory) {}
};

}  // namespace spool
