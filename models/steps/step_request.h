// Public: one of the headers of docs/public-headers.md.
#pragma once

// How the steps of a model are to run: what is set by hand, and what is chosen for a budget.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spool/planner/policy.h"

namespace spool {

// How the ops of a run are cut.  It changes the order of sums, so a run that goes on keeps it.
struct StepChunks {
  int64_t loss_rows = 0;                  // of logits that are live at a time; 0: all
  int64_t mlp_rows = 0;                   // of each block's MLP that are live at a time; 0: all
  std::vector<NodesInChunks> nodes = {};  // besides, and not in these
  bool operator==(const StepChunks&) const = default;
};
StepChunks chunks_of(const Policy&);
Policy with_chunks(Policy, const StepChunks&);

// What was not set by hand, and so is chosen for the memory that there is, if no plan is given.
struct Choices {
  bool placement = false;  // what is recomputed
  bool loss_chunk = false;
  bool regions = false;  // which nodes run in chunks, if `placement` is chosen
  // Whether a share of the optimizer's state may be on the host; where saved values may be sent, if
  // `placement` is chosen; and the bytes of the host for both.
  bool state_share = false;
  std::optional<OffloadTarget> offload_to = {};
  size_t host_bytes = MetaStream::unlimited;

  bool any() const { return placement || loss_chunk || state_share; }
};

struct StepRequest {
  // The policy decides what is not chosen; the plan, if there is one, is of a step, and in place of
  // both.
  std::optional<Policy> policy = {};
  std::optional<Plan> plan = {};
  // None: what is recomputed, and all chunks, unless a policy or a plan is given.
  std::optional<Choices> choose = {};
  size_t budget = 0;  // bytes of the device; 0: the foretold peak
  // Bytes that steps without a budget may take; if they take more as set by hand, what may be
  // chosen is.
  size_t free = MetaStream::unlimited;
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
