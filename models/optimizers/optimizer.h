// Public: one of the headers of docs/public-headers.md.
#pragma once

// An optimizer turns the gradients of its parameters into new values for them, and frees the
// gradients.
//
//   optimizer.step(learning_rate);   after backward, once for each step
//
// A rule (update_rule.h) defines the update of one parameter.  The rest is the same for all rules:
// gradients are clipped by their global norm, and a step whose norm is not finite changes nothing;
// each bf16 parameter has an f32 master, which a step updates and rounds to the parameter, unless
// rounding is stochastic; each parameter has a rate and a decay (parameter_groups.h).  adamw.h and
// sgd.h are optimizers; optimizer_choice.h creates either from its settings.
//
// The state, which is the rule's rows and the masters, is on the device or in host memory; streamed
// state may be partly on each.  State that is streamed through the device gives the same bits as
// state that stays there.  So does state that the host updates, if the device is a CPU.
//
// The state is derived from the parameters' values at the first step, or when it is first read or
// written, so weights may be loaded before that.
//
// To resume a run: load the parameters, then write the state, then call set_steps().
//
// A step has two parts, so that a graph can be captured once and replayed: prepare(), called before
// each step, writes to the device what changes from step to step; update() enqueues the work, all
// of which can be captured.  A replay does not call update(): after it, call set_steps() with the
// number of steps done.
//
// If update() throws because it was misused or lacks memory, nothing has changed, and it may be
// called again.  If it throws later, when a stream fails, some parameters and their state are a
// step ahead of others, which cannot be undone: gradients are freed, and the optimizer refuses to
// continue or to read its state until initialise(), after which a run resumes from a checkpoint.
// An update that fails while it is captured counts as one that failed later.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "spool/autograd/homes.h"
#include "spool/autograd/plan.h"
#include "spool/models/optimizers/parameter_groups.h"
#include "spool/models/optimizers/update_rule.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/names.h"
#include "spool/runtime/tensor.h"

namespace spool {

class OtherRanks;
class OwnRow;
class StateRows;
class UpdateLoop;

// How a step rounds bf16 parameters: to the nearest value, from f32 masters that it keeps of them;
// or without masters, up or down at random (kernels/weights.h).
enum class Rounding { nearest, stochastic };
template <>
inline constexpr std::array enumerator_names<Rounding>{"nearest", "stochastic"};

// Where an optimizer's state is.
struct OptimizerMemory {
  OptimizerState state = OptimizerState::device;
  HostLink* link = nullptr;    // required unless the state is on the device; outlives the optimizer
  size_t bytes_on_device = 0;  // maximum share of streamed state that stays on the device
  OwnRow* own = nullptr;       // what is updated, if not all parameters (own_row.h); outlives it
  OtherRanks* others = nullptr;  // of ranks (other_ranks.h); outlives it
  Homes* homes = nullptr;        // of parameters and gradients on the host (homes.h); outlives it
  int64_t bucket_elements = 0;   // of streamed state on the device at a time; as Plan has it
};

// The settings that all rules have.
struct UpdateSettings {
  double decay = 0;
  double clip = 0;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  std::vector<ParameterGroup> groups = {};
};

// The common part of AdamWSettings, SgdSettings, ...
template <class Settings>
UpdateSettings update_settings(const Settings& s) {
  return {.decay = s.decay, .clip = s.clip, .rounding = s.rounding, .groups = s.groups};
}

// Elements of one parameter, counted in the whole one, in one row of the state.
struct StateRange {
  size_t row = 0;        // of state_rows()
  size_t parameter = 0;  // of parameters()
  Range elements = {};
};

class Optimizer : private GradientUser {
 public:
  // Allocates all state.
  Optimizer(std::unique_ptr<const UpdateRule>, std::vector<Parameter*> parameters,
            const UpdateSettings&, Stream&, const OptimizerMemory& = {});
  // Waits for the host's part of the last step.
  ~Optimizer() override;

  const std::vector<Parameter*>& parameters() const { return parameters_; }

  // Starts over: no steps done, and the state derived again from the parameters' current values.
  // The state does not follow later changes to the parameters, except by update().
  void initialise();

  // Step t, from 1 on, at this learning rate.  prepare() may be repeated before its update().
  // update() changes the parameters that have a gradient, of which there must be one, and frees the
  // gradients; then t steps are done.  If the gradients are not finite, nothing else happens, but
  // the step counts.  `random` seeds stochastic rounding: i32 (4), the seed's lower and upper half,
  // the step, and an unused element.
  void prepare(int64_t t, double learning_rate);
  void update(const Tensor& random = {});
  // The random state of updates in backward (homes.h), which come between the two.
  void set_random(const Tensor& random) { random_ = random; }
  // The next step.  If it throws, no step was done.
  void step(double learning_rate, const Tensor& random = {}) {
    prepare(steps_ + 1, learning_rate);
    update(random);
  }

  // Steps done.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);

  // Waits for the host's part of the last step, if any; throws the errors of its work.
  void synchronize() const;

  // f32 (3), of the last step: the factor that clipped the gradients, their norm before that, and
  // whether it is finite.
  const Tensor& clip() const { return clip_; }

  // The rule's rows, then "master", f32, if there are masters; empty if there is no state.
  const std::vector<StateRow>& state_rows() const;
  // Elements of the state, in the row's type, wherever they are; of other ranks only while these
  // answer.  What is written is kept where it is one's own.  All wait for the last step.
  void read_state(const StateRange&, std::span<std::byte> out);
  void write_state(const StateRange&, std::span<const std::byte> in);
  // Elements counted in what this rank has of the parameter.
  void read_own_state(const StateRange&, std::span<std::byte> out);

  // Where the state lives (state_rows.h, which is not a public header).
  const StateRows& places() const { return *state_; }

 private:
  void make_ready();
  void check_whole() const;
  void check_update(const Tensor& random) const;
  void check_prepared(const Tensor& random) const;
  void measure_gradients();
  void free_gradients();
  UpdateStep::Scalars scalars(const Tensor& clip, const Tensor& random) const;
  Tensor squares() const;
  View squares_of(size_t parameter) const;
  void begin_final() override;
  void measure(const Parameter&) override;
  std::vector<View> state_on_host(const Parameter&) const override;
  void update(const Parameter&, const std::vector<Tensor>& fetched) override;
  const Parameter& parameter_of(const StateRange&) const;
  StateRows& open_state(const StateRange&, const Spec& of, size_t bytes);

  std::unique_ptr<const UpdateRule> rule_;
  std::vector<Parameter*> parameters_;
  float limit_;  // of the norm
  Rounding rounding_;
  Stream& stream_;
  OwnRow* own_;
  OtherRanks* others_;
  Homes* homes_;
  Tensor schedule_, squared_, clip_;
  std::vector<int64_t> first_granules_;  // of each parameter's part of the norm
  int64_t granules_ = 0;
  // With homes: the granules, written as gradients are final; and of one updated in backward.
  Tensor squares_, squared_of_one_, clip_of_one_, random_;
  std::unordered_map<const Parameter*, size_t> numbers_;  // of parameters
  bool measures_ahead_ = false;  // some of the step's gradients have been measured
  std::unique_ptr<StateRows> state_;
  std::unique_ptr<UpdateLoop> loop_;
  int64_t steps_ = 0, prepared_ = 0;  // prepared: the step, or 0
  bool initialised_ = false;
};

// Where the state of these parameters would be: the device, too, if there is none, or if its share
// on the device is all of the streamed state.
OptimizerState place_of_state(const std::vector<Parameter*>&, const UpdateRule&, Rounding,
                              const OptimizerMemory&);

}  // namespace spool
