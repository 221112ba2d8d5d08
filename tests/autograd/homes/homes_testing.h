#pragma once

// Steps of a small model whose parameters and gradients live where a plan says, and what each step
// leaves: the bits of the same steps with everything resident.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "spool/autograd/homes.h"
#include "spool/autograd/tape.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/allocation_log.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

using Names = std::multiset<std::string>;

struct NetForm {
  int blocks = 3;
  bool with_loss = false;    // a loss that forms gradients in forward follows the last linear
  bool tied = false;         // the first linear's weight is the last one's, too
  bool with_unused = false;  // a last parameter is read by no node
  int frozen_block = -1;     // whose parameters are not trained
  DType dtype = DType::f32;
  Plan rest = {};  // of everything but units
};

// A linear; blocks, each a probe, two linears with a gelu between, and a sum; a linear.
class HomesNet {
 public:
  static constexpr int64_t rows = 8, channels = 16;
  // The nodes: one, five of each block, and the last.
  static constexpr NodeId first_of(int block) { return 1 + 5 * block; }
  static constexpr NodeId last_of(int block) { return first_of(block) + 4; }
  NodeId nodes() const { return first_of(form.blocks) + (form.with_loss ? 2 : 1); }
  // Of the unit, from 0 on: the first linear, each block, the last linear.
  static Names names_of(const NetForm&, int unit);

  // Called where a block begins, in forward or in backward.
  using Probe = std::function<void(int block, bool in_backward)>;

  HomesNet(const NetForm&, Stream&, const std::vector<bool>& away);
  // Forward of a micro-batch; returns what backward begins at.
  Var run(Tape&, int64_t micro);

  NetForm form;
  Parameters parameters;
  Probe probe = {};
};

// The plan whose units are the first linear, each block and the last linear, with everything away,
// each fetched when the unit that is so many before it begins.
Plan plan_of_units(const NetForm&, int ahead = 1);
// The same units without their homes: what a model with everything resident runs under.
Plan resident_plan(const NetForm&);

// What steps leave, to the bit.
struct StepBits {
  std::vector<std::vector<double>> outputs = {}, gradients = {}, parameters = {}, state = {};
  bool operator==(const StepBits&) const = default;
};

// Runs steps of the net: micro-batches on a tape each, then an update with a state of one row, for
// whatever is not updated in backward.
class HomesRun final : GradientUser {
 public:
  HomesRun(const NetForm&, const Plan&, Stream&, int micro_batches = 1);

  StepBits step();
  // Only forward and backward of the micro-batches; gradients stay where they are.
  void run_tapes();
  // The names of parameters whose data, or gradients, are on the device.
  Names on_device(Purpose) const;
  // How often memory for a parameter's data, or its gradient, was allocated so far.
  int64_t allocated(Purpose, const std::string& name) const;

  Stream& stream;
  HostLink link;
  AllocationLog log;
  HomesNet net;
  std::unique_ptr<Homes> homes;
  std::vector<std::string> measured = {};  // in order
  bool needs_values = true;                // not on meta

 private:
  void begin_final() override { measured.clear(); }
  void measure(const Parameter& p) override { measured.emplace_back(p.name.c_str()); }
  std::vector<View> state_on_host(const Parameter&) const override;
  void update(const Parameter&, const std::vector<Tensor>& fetched) override;
  void update_rest();
  Tensor gradient_of(const Parameter&) const;
  std::vector<double> values_of(const Tensor&) const;

  Plan plan_;
  int micro_batches_;
  std::unique_ptr<Stream> host_;
  std::vector<Tensor> state_;  // of each parameter
  std::vector<std::vector<double>> outputs_;
};

// The bits of two steps with everything resident.
std::vector<StepBits> resident_steps(const NetForm&, int micro_batches = 1);
// Expects those of two steps under the plan, with copies that are delayed at random, and the peaks
// of device and host that a rehearsal foretells.
void expect_as_resident(const NetForm&, const Plan&, int micro_batches = 1);

}  // namespace spool::testing
