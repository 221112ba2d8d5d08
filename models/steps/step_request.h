// Public: one of the headers of docs/public-headers.md.
#pragma once

// How the steps of a model are to run: what is set by hand, and what is chosen for a budget.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spool/planner/policy.h"

namespace spool {

// The chunks of a run's ops.  They change the order of sums, so a resumed run keeps them.
struct StepChunks {
  int64_t loss_rows = 0;                  // rows of logits that are live at a time; 0: all
  int64_t mlp_rows = 0;                   // rows of each block's MLP live at a time; 0: all
  std::vector<NodesInChunks> nodes = {};  // other nodes that run in chunks
  bool operator==(const StepChunks&) const = default;
};
StepChunks chunks_of(const Policy&);
Policy with_chunks(Policy, const StepChunks&);

// What is not set by hand and so is chosen for the available memory, unless a plan is given.
struct Choices {
  bool placement = false;  // what is recomputed
  bool loss_chunk = false;
  bool regions = false;  // which nodes run in chunks, if `placement` is chosen
  // Whether a share of the optimizer's state may be on the host; where saved values may be
  // offloaded, if `placement` is chosen; and the host's bytes for both.
  bool state_share = false;
  std::optional<OffloadTarget> offload_to = {};
  size_t host_bytes = MetaStream::unlimited;

  bool any() const { return placement || loss_chunk || state_share; }
};

struct StepRequest {
  // The policy decides what is not chosen.  A plan of a step replaces both policy and choices.
  std::optional<Policy> policy = {};
  std::optional<Plan> plan = {};
  // None: if there is neither policy nor plan, what is recomputed and all chunks are chosen.
  std::optional<Choices> choose = {};
  size_t budget = 0;  // bytes of the device; 0: the foretold peak
  // Free bytes for steps without a budget: if the plan set by hand needs more, a search chooses.
  size_t free = MetaStream::unlimited;
  // Of gradients that ranks exchange at a time; 0: those of the plan, or chosen with several ranks
  // (exchange/buckets_choice.h).
  int buckets_in_flight = 0;
  bool graph = true;                 // capture a step and replay it, where the device can
  std::string spill_directory = {};  // for what is offloaded to a disk

  Policy given_policy() const { return policy.value_or(Policy{}); }
  Choices choices() const {
    if (plan) return {.host_bytes = choose ? choose->host_bytes : MetaStream::unlimited};
    if (choose) return *choose;
    return policy ? Choices{} : Choices{.placement = true, .loss_chunk = true, .regions = true};
  }
};

}  // namespace spool
