#pragma once

// Random mixtures of what decides about saved values: a plan, and by hand scopes, checkpoints and
// hooks.  An enactment runs a random program under a mixture.

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "spool/autograd/parameters.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/autograd/failure_testing.h"
#include "tests/autograd/random_program.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {

using Bytes = std::vector<std::byte>;

// Something opened by hand around consecutive nodes.
struct Nest {
  enum Kind { checkpoint, scope, offload_inputs, offload_inside, hooks };
  NodeId first = 0, last = 0;
  Kind kind = scope;
  HookKind hook = HookKind::keep;
  std::vector<Nest> inside = {};
};

struct MixtureOptions {
  int ops = 14;
  bool backward_follows = true;
  int max_micro_batches = 3;
  bool disk = true;            // some values are offloaded to a disk
  bool hooks_offload = true;   // some hooks do
  bool plan_offloads = false;  // at least one value
  bool tokens_move = true;     // some inputs that are not of a floating type are offloaded
  bool applies_again = false;  // an op that failed in forward
};

struct Mixture {
  Mixture(uint64_t seed, const MixtureOptions&);
  Mixture(const Mixture&) = delete;  // the program is not copied
  Mixture& operator=(const Mixture&) = delete;

  // A plan like this one's, but one that keeps all; chunks are as in this one, for they change the
  // order of sums.
  Plan kept() const;

  MixtureOptions options;
  Program program;
  Plan plan;
  std::vector<Nest> nests;
  int micro_batches;
  bool keeps_vars;  // until backward has ended

 private:
  Mixture(Random, const MixtureOptions&);
};

// Applies the ops of a program to a tape.
class Enactment {
 public:
  // Without nests, the plan alone decides.  `offloader` is for hooks.
  Enactment(const Mixture&, bool with_nests, Faults&, Offloader*, Parameters&);
  Var run(Tape&, const std::vector<Tensor>& inputs);

  const Var& input() const { return input_; }  // the f32 one
  void drop_vars();

 private:
  void enact(NodeId first, NodeId last, const std::vector<Nest>&);
  void enter(const Nest&);
  void apply(NodeId);
  Few<Var> apply_again_if_it_fails(const Node&, const std::vector<Operand>&);

  const Mixture& mixture_;
  bool with_nests_;
  Faults& faults_;
  Offloader* offloader_;
  Parameters& parameters_;
  Tape* tape_ = nullptr;
  std::vector<NodeId> last_use_;  // by value
  std::vector<Var> vars_ = {};    // by value
  Var input_ = {};
};

// Adds the parameters of a program, with values.
void add_parameters(Parameters&, const Program&);
// The inputs of a program, and the values of a micro-batch for them.
std::vector<Tensor> make_inputs(const Program&, Stream&);
void write_inputs(const std::vector<Tensor>&, int64_t micro);

// A stream with the parameters, inputs, link and offloader of a mixture.
class MixtureRun {
 public:
  static constexpr size_t plenty = size_t{64} << 20, disk_bytes = size_t{1} << 20;
  // One run of a mixture at a time.
  explicit MixtureRun(Mixture&);

  // Makes a new link and offloader of these sizes.
  void connect(size_t host_bytes, size_t disk_bytes);
  // Runs all micro-batches; returns the bits of losses and gradients.  If it throws, the gradients
  // are freed.  Unless it is mixed, all values are kept and no hooks are called.
  Bytes step(bool mixed = true);
  // Bytes on the device, the host and the disk, when the last step's tapes had gone forward.
  const std::vector<size_t>& live_after_forward() const { return live_after_forward_; }
  // Expects that nothing is live but parameters and inputs.
  void expect_nothing_live();

  CpuStream stream{plenty, 2};
  Faults faults;
  std::unique_ptr<HostLink> link;
  std::unique_ptr<Offloader> offloader;

 private:
  void run_tape(bool mixed, int64_t micro, std::vector<Tensor>& results);
  void expect_tape_holds_nothing(std::optional<Tape>&);

  const Mixture& mixture_;
  TemporaryDirectory directory_;
  Parameters parameters_{stream};
  std::vector<std::vector<Tensor>> inputs_;  // by micro-batch
  Tensor random_, loss_scale_;
  size_t live_before_ = 0;
  std::vector<size_t> live_after_forward_ = {};
};

}  // namespace spool::testing
