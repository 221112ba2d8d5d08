#pragma once

// The question to a search and its answer: a step with what may be chosen about it, and a plan with
// its costs.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "spool/planner/rehearsal.h"
#include "spool/runtime/memory/layout.h"

namespace spool {

// The step of some model that a search plans, and the run around it.
struct SearchedStep {
  Machine machine = {};
  int64_t micro_batches = 1;
  // Rehearses a step of at most three micro-batches under a plan and a layout of its memory.
  std::function<RehearsedStep(const Plan&, const std::optional<Layout>&, const RehearsalOptions&)>
      rehearse;
  // The tape of a micro-batch under a plan.
  std::function<RehearsedTape(const Plan&)> rehearse_tape;
  // The smallest peak of the rest of the run in bytes of the device, such as an evaluation in the
  // chunks that need fewest, with the optimizer's state where the plan places it.
  std::function<size_t(const Plan&)> other_peak;
};

// What a search may choose.
struct Levers {
  // Which values are recomputed; if not, the plan's placements and regions are `fixed`'s.
  bool placement = true;
  // Whether nodes of a segment may run in chunks (planner/chunks.h), if `placement` is true and
  // `fixed` has no region.
  bool regions = false;
  // Rows of logits that are live at a time; none: the search chooses.  0: all.
  std::optional<int64_t> loss_rows = {};
  // Whether a share of the optimizer's state may be on the host and streamed through the device.
  bool state_share = false;
  // Where saved values may be offloaded between forward and backward; none: nowhere.
  std::optional<OffloadTarget> offload_to = {};
  size_t host_bytes = MetaStream::unlimited;  // of the host, for state and values
  Plan fixed = {};
  // A plan whose gap to the bound is at most this, as a part, ends the search for a faster one.
  double proven_gap = 0.001;
};

// A plan and its costs.
struct FoundPlan {
  Plan plan = {};
  int64_t loss_rows = 0;                  // of a chunk; 0: all
  std::optional<Layout> layout = {};      // of a step's memory; none: best fit
  size_t peak = 0;                        // of the run, bytes of the device
  size_t host_bytes = 0, disk_bytes = 0;  // of state and values off the device
  double seconds = 0;                     // of a step
  std::string binding = {};               // where the step reaches its peak, in words
};

}  // namespace spool
