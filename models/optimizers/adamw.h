#pragma once

// The AdamW optimizer over all parameters of a model, with gradients clipped by their global norm.
// The arithmetic is in kernels/adamw.h; this file has the state.  For
// the order of a step see optimizer.h, for its failures clipped_optimizer.h, and for the learning
// rate and decay of each parameter parameter_groups.h.
//
// Each bf16 parameter has an f32 master, which a step updates and rounds to the parameter.  With
// stochastic rounding there are no masters: a step updates the bf16 parameter itself.
//
// The state (moments, which begin at zero, and masters) is on the device or in host memory
// (offloaded_adamw.h), or, if it is streamed, partly on each.  State that is streamed through the
// device gives the same bits as state that stays there.  So does state that the host updates, if
// the device is a CPU.

#include <memory>
#include <vector>

#include "spool/autograd/tape.h"
#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/clipped_optimizer.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  std::vector<ParameterGroup> groups = {};
};

// Where the state of these parameters is: on the device too if it is streamed and its share is all.
OptimizerState place_of_state(const std::vector<Parameter*>&, const AdamWSettings&,
                              const OptimizerMemory&);

class AdamWOptimizer final : public ClippedOptimizer {
 public:
  // Allocates all state.
  AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings&, Stream&,
                 const OptimizerMemory& = {});
  // Waits for the host's part of the last step.
  ~AdamWOptimizer() override;

  void synchronize() const override;
  // m, v, and master if there are masters.
  std::vector<StateTensors> state() override;

  // The same rows: see Optimizer::state().  masters() is empty unless parameters are bf16 and
  // rounded to nearest.
  const std::vector<Tensor>& first_moments() { return open_state().m; }
  const std::vector<Tensor>& second_moments() { return open_state().v; }
  const std::vector<Tensor>& masters() { return open_state().masters; }

 private:
  void initialise_state() override;
  std::vector<float> schedule_at(int64_t t, double learning_rate) const override;
  void begin_step() override;
  void update_all(const Tensor& random) override;
  bool half_updated() const override {
    return offloaded_ ? offloaded_->half_updated() : ClippedOptimizer::half_updated();
  }
  const AdamWState& open_state();
  AdamW kernel(const Tensor& random) const;
  AdamW::Entry entry(size_t i) const;

  AdamWSettings settings_;
  std::unique_ptr<OffloadedAdamW> offloaded_;
  AdamWState state_;  // if all of it is on the device
};

}  // namespace spool
