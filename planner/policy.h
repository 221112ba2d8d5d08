// Public: one of the headers of docs/public-headers.md.
#pragma once

// A policy chooses which values are recomputed or offloaded, by a rule that the user sets and that
// is the same for all layers.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "spool/planner/chunks.h"
#include "spool/planner/home_units.h"
#include "spool/planner/rehearsal.h"

namespace spool {

// Which saved values are offloaded.
enum class Offloading : uint8_t {
  none,
  residual,  // what a block reads from the block before it
  all,       // every value that is still saved
};
template <>
inline constexpr std::array enumerator_names<Offloading>{"none", "residual", "all"};

struct Policy {
  // What is recomputed: the outputs of norms, activations and attention (Op::kind()), or a whole
  // block from its input.  A block is an outermost scope of the tape (Tape::Scope).  Gathers:
  // parameters that ranks store in parts (ZeRO-3) are gathered again.
  bool norms = false, activations = false, attention = false, block = false, gathers = false;
  Offloading offload = Offloading::none;
  size_t min_offload_bytes = size_t{1} << 20;  // smaller values stay
  OffloadTarget target = OffloadTarget::host;
  OptimizerState optimizer_state = OptimizerState::device;
  // Of the units' parameters (home_units.h) so many bytes stay on the device, with their gradients,
  // and all others live on the host; none: all stay.
  std::optional<size_t> parameters_on_device = {};
  UpdateTime update = UpdateTime::end;
  int64_t loss_chunk = 0;  // rows of logits that are live at a time; 0: all
  int64_t mlp_chunk = 0;   // rows of a block's MLP (chunk_mlps()) that are live at a time; 0: all
  std::vector<NodesInChunks> in_chunks = {};  // other nodes that run in chunks
};

// Parses "none", or a list such as "norms,gelu"; throws an error that lists the names.  "gelu" and
// "activations" both mean every activation.
void set_recompute(Policy&, std::string_view list);
std::string recompute_list(const Policy&);

// Rehearses the tape that is planned for, under this plan, on a meta stream of the machine.
using RehearseTape = std::function<RehearsedTape(const Plan&)>;

// The plan that the policy makes for the tape.  offload_schedule.h chooses, by the machine's clock,
// when offloaded values leave and come back.  A value without time to do both, such as one that is
// computed last, stays.
Plan plan_from_policy(const Policy&, const Machine&, const RehearseTape&);
// The same from the program of the tape if it keeps everything.
Plan plan_from_policy(const Policy&, const Machine&, const Program&, const RehearseTape&);

}  // namespace spool
