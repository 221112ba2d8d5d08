#pragma once

// Stochastic gradient descent over all parameters of a model, with momentum, weight decay and
// gradients clipped by their global norm: the arithmetic is in kernels/sgd.h.  For the order of a
// step see optimizer.h, for its failures clipped_optimizer.h, and for the learning rate and decay
// of each parameter parameter_groups.h.
//
// The state is a buffer for each parameter where there is momentum, which begins at zero, and the
// f32 masters of bf16 parameters that are rounded to nearest: 0 to 8 bytes an element.  It is on
// the device; it cannot be on the host.

#include <vector>

#include "spool/kernels/sgd.h"
#include "spool/models/optimizers/clipped_optimizer.h"

namespace spool {

struct SgdSettings {
  double momentum = 0;    // in [0, 1); 0: none
  bool nesterov = false;  // Nesterov's form of momentum
  double decay = 0;
  double clip = 0;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  std::vector<ParameterGroup> groups = {};
};

// On the device.  Throws if there is state and `memory` has a part of it on the host.
OptimizerState place_of_state(const std::vector<Parameter*>&, const SgdSettings&,
                              const OptimizerMemory&);

class SgdOptimizer final : public ClippedOptimizer {
 public:
  // Allocates all state.
  SgdOptimizer(std::vector<Parameter*> parameters, const SgdSettings&, Stream&,
               const OptimizerMemory& = {});

  // momentum and master, as far as there are any.
  std::vector<StateTensors> state() override;

 private:
  void initialise_state() override;
  std::vector<float> schedule_at(int64_t t, double learning_rate) const override;
  void update_all(const Tensor& random) override;
  Sgd::Entry entry(size_t i) const;

  SgdSettings settings_;
  std::vector<Tensor> momentum_, masters_;  // or empty
};

}  // namespace spool
