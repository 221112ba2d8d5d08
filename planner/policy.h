#pragma once

// Plans made by a rule rather than by a search: what a user sets by hand, alike for all layers.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "spool/autograd/tape.h"

namespace spool {

// What of the saved values leaves the device.
enum class Offloading : uint8_t {
  none,
  residual,  // what a block reads of the one before it
  all,       // every value that is still saved
};

constexpr const char* name(Offloading o) {
  constexpr const char* names[] = {"none", "residual", "all"};
  return names[static_cast<size_t>(o)];
}

struct Policy {
  // What runs again: the outputs of norms, of GELU, of attention; all of a block, but its input.  A
  // block is an outermost scope of the tape (Tape::Scope).
  bool norms = false, gelu = false, attention = false, block = false;
  Offloading offload = Offloading::none;
  size_t min_offload_bytes = size_t{1} << 20;  // bytes; smaller values stay
  OffloadTarget target = OffloadTarget::host;
  OptimizerState optimizer_state = OptimizerState::device;
  int64_t loss_chunk = 0;  // rows of logits that exist at a time; 0: all
};

// "none", or a list such as "norms,gelu"; throws a sentence with what there is.
void set_recompute(Policy&, std::string_view list);
std::string recompute_list(const Policy&);
// "none", "residual", "all"; nothing for any other text.
std::optional<Offloading> parse_offloading(std::string_view);
std::optional<OptimizerState> parse_optimizer_state(std::string_view);

// A tape to be planned for: goes forward, shows itself, and goes backward, on a stream of its own
// that pretends to be the machine.
using RehearsedTape = std::function<void(const Machine&, const TapeOptions&,
                                         const std::function<void(const Tape&)>& after_forward)>;

// The plan that the policy makes for it.  What is offloaded has its places from the machine's
// clock: it is released where its copy will have gone, and fetched where a copy that begins then
// arrives in time; a value that has no such places, one of the last that are made, stays.
Plan plan_from_policy(const Policy&, const Machine&, const RehearsedTape&);

}  // namespace spool
