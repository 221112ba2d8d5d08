#pragma once

// An optimizer with random parameters and gradients, and the bytes of parameters and optimizer
// state, to be compared.

#include <cstddef>
#include <optional>
#include <vector>

#include "spool/models/optimizers/adamw.h"
#include "spool/models/optimizers/state_rows.h"
#include "spool/runtime/cpu/stream.h"

namespace spool::testing {

using Bytes = std::vector<std::byte>;

constexpr OptimizerState optimizer_states[] = {OptimizerState::device, OptimizerState::streamed,
                                               OptimizerState::cpu};

// The bytes of the parameters, then of each row of the state.
Bytes state_bytes(const std::vector<Parameter*>&, Optimizer&);
// The same, even for an optimizer that refuses to show its state.
Bytes state_bytes_at_rest(const Optimizer&);
// Elements of one row of the state: a range of a parameter's, or all of them.
std::vector<float> read_row(Optimizer&, const StateRange&);
std::vector<float> read_row(Optimizer&, size_t row, size_t parameter);
void write_row(Optimizer&, const StateRange&, std::span<const float>);
// Loads parameters and state, as from a checkpoint.
void load_bytes(Optimizer&, const Bytes&);

// Where an optimizer's state is.
struct StatePlace {
  OptimizerState state;
  size_t bytes_on_device;  // of streamed state

  StatePlace(OptimizerState s, size_t bytes = 0) : state(s), bytes_on_device(bytes) {}
};

// How an optimizer's parameters are stored.
struct OptimizerForm {
  DType type = DType::f32, gradient = DType::f32;
  Rounding rounding = Rounding::nearest;

  // Number of rows of state: moments, and masters if there are any.
  size_t rows() const { return type == DType::bf16 && rounding == Rounding::nearest ? 3 : 2; }
};

// An optimizer on the cpu, with its parameters.
struct OptimizerRun {
  static constexpr size_t plenty = size_t{256} << 20, host_bytes = size_t{64} << 20;
  // Makes the link between the stream and the host's memory.
  using MakeLink = std::function<std::unique_ptr<HostLink>(Stream&)>;

  CpuStream stream;
  std::unique_ptr<HostLink> link;
  OptimizerForm form;
  std::vector<Parameter> parameters;
  std::vector<Parameter*> pointers;
  std::optional<AdamWOptimizer> optimizer;
  Tensor random;

  // The optimizer initialises its state when it is first used.
  OptimizerRun(const std::vector<int64_t>& numels, const OptimizerForm&, const StatePlace&,
               const MakeLink&, size_t budget = plenty);
  // Has a link with enough memory, and an initialised optimizer.
  OptimizerRun(const std::vector<int64_t>& numels, const OptimizerForm&, const StatePlace&);

  // Sets gradients, without one for a third of the parameters, in turn.
  void make_gradients(int64_t t);
  void step(int64_t t) {
    optimizer->prepare(t, 0.01);
    optimizer->update(random);
  }
  Bytes bytes() { return state_bytes(pointers, *optimizer); }
};

}  // namespace spool::testing
