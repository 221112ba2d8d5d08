#pragma once

// What an optimizer is to a training step: it turns the gradients of its parameters into new
// values for them, and frees the gradients.
//
//   optimizer.step(learning_rate);   after backward, once for each step
//
// An optimizer counts its steps, and starts initialised: what it keeps of each parameter, its
// state, is derived from the parameters' values at the first step, or when the state is first asked
// for, so weights that are loaded before that count.  adamw.h and sgd.h are optimizers,
// optimizer_choice.h makes either from its settings.
//
// A run that resumes: load the parameters, then write the tensors of state(), then set_steps().
//
// A step in two parts, for a graph that is captured once and replayed: prepare() writes what
// changes from step to step to the device, and is called before each step; update() enqueues the
// work, all of which a graph can hold.  A replay calls no update(): whoever replays a graph calls
// set_steps() with the steps done.

#include <array>
#include <cstdint>
#include <vector>

#include "spool/autograd/plan.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/names.h"
#include "spool/runtime/tensor.h"

namespace spool {

// How a step rounds parameters that are bf16: to the nearest value, of f32 masters that it keeps of
// them; or without masters, up or down at random (kernels/weights.h).
enum class Rounding { nearest, stochastic };
template <>
inline constexpr std::array enumerator_names<Rounding>{"nearest", "stochastic"};

// Where an optimizer's state is.
struct OptimizerMemory {
  OptimizerState state = OptimizerState::device;
  HostLink* link = nullptr;    // required unless the state is on the device; outlives the optimizer
  size_t bytes_on_device = 0;  // of streamed state, the share that stays on the device, at most
};

// One row of an optimizer's state: a tensor for each parameter, in their order, f32 and of the
// parameter's shape.
struct StateTensors {
  const char* name = "";  // "m", "v", "momentum", "master"
  std::vector<Tensor> tensors = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Starts over: no steps done, and the state derived anew from the parameters' present values.
  // Later changes to the parameters, except by update(), do not reach the state.
  virtual void initialise() = 0;

  // The t-th step, t from 1 on, at this learning rate.  prepare() may be called again before its
  // update().  update() changes the parameters that have a gradient, at least one, and frees the
  // gradients; then t steps are done.  If the gradients are not finite, nothing else happens, but
  // the step counts.  `random` seeds stochastic rounding: i32 (4), the seed's lower and upper half,
  // the step, and an element that is not read.
  virtual void prepare(int64_t t, double learning_rate) = 0;
  virtual void update(const Tensor& random = {}) = 0;
  // The next step.  If it throws, no step was done.
  void step(double learning_rate, const Tensor& random = {}) {
    prepare(steps_ + 1, learning_rate);
    update(random);
  }

  // Steps done.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);

  // Waits for the host's part of the last step, if any; throws the errors of its work.
  virtual void synchronize() const = 0;

  // f32 (3), of the last step: the factor that clipped the gradients, their norm before that, and
  // whether it is finite.
  virtual const Tensor& clip() const = 0;

  // The rows that there are; none if the optimizer keeps nothing.  If any state is on the host, the
  // call waits for the last step, and the tensors may be read and written until the next prepare()
  // or initialise(), and are not to be kept.
  virtual std::vector<StateTensors> state() = 0;

 protected:
  Optimizer() = default;

 private:
  int64_t steps_ = 0;
};

}  // namespace spool
