#pragma once

// Training steps of a random program under a mixture (tests/autograd/mixture_testing.h), and checks
// of what they leave behind.

#include <vector>

#include "spool/models/steps/step_executor.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/autograd/mixture_testing.h"
#include "tests/models/optimizers/optimizer_testing.h"

namespace spool::testing {

// Hooks do not offload, since the step has its own offloader.
inline MixtureOptions options_of_steps() { return {.hooks_offload = false, .plan_offloads = true}; }

class MixedModel final : public StepModel {
 public:
  MixedModel(Mixture&, bool mixed, Stream&, Faults&);
  Parameters& parameters() override { return parameters_; }
  Var loss(Tape&) override;
  void upload(int64_t micro) { write_inputs(inputs_, micro); }

 private:
  const Mixture& mixture_;
  bool mixed_;
  Faults& faults_;
  Parameters parameters_;
  std::vector<Tensor> inputs_;
};

// An initialised runner of such steps.
class MixedSteps {
 public:
  // If not mixed, all is kept, no hooks are called, and the state is on the device.
  MixedSteps(Mixture&, bool mixed, OptimizerState);

  // A failed step may be repeated.
  void run(int64_t number);
  // Loss, norm of the gradients, parameters and optimizer state after the last step.
  Bytes outcome();
  // Expects that the same is live as before the first step.
  void expect_nothing_live();
  // Expects also that no work is still running.
  void expect_as_before_the_step();

  CpuStream stream{MixtureRun::plenty, 2};
  Faults faults;

 private:
  StepConfig config() const;
  StepPlans plans(bool mixed, OptimizerState) const;

  const Mixture& mixture_;
  TemporaryDirectory directory_;
  MixedModel model_;
  StepExecutor runner_;
  size_t live_before_ = 0, host_live_before_ = 0;
};

}  // namespace spool::testing
