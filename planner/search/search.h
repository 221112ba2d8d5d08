// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The search for the fastest plan of a step within a budget, with a proof of how far it can be from
// the best.  docs/planner.md explains how it works.
//
// The plan of a budget is that of the highest level within it; levels are a ladder of budgets, the
// same for every step.  Beside them stand plans that keep everything or treat equal segments alike,
// and a search of plans that only recompute: of all these a budget gets the fastest.  So a larger
// budget never gives a slower plan, and equal steps on equal machines have equal plans.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/planner/rehearsal.h"
#include "spool/runtime/memory/layout.h"

namespace spool {

// What a search is about: a step of some model, and the run around it.
struct SearchedStep {
  Machine machine = {};
  int64_t micro_batches = 1;
  // Rehearses a step of at most three micro-batches under a plan and a layout of its memory.
  std::function<RehearsedStep(const Plan&, const std::optional<Layout>&, const AskedOfRehearsal&)>
      rehearse;
  // The tape of a micro-batch under a plan.
  std::function<RehearsedTape(const Plan&)> rehearse_tape;
  // The peak of what else the run does, in bytes of the device, such as an evaluation in chunks of
  // the loss of so many rows (0: all), with the optimizer's state where the plan of the step has
  // it.
  std::function<size_t(int64_t loss_rows, const Plan&)> other_peak;
};

// What a search may choose.
struct Levers {
  // Which values are recomputed; if not, the plan's placements and regions are `fixed`'s.
  bool placement = true;
  // Whether nodes of a segment may run in chunks (planner/chunks.h), if `placement` is chosen and
  // no region is fixed.
  bool regions = false;
  // Rows of logits that are live at a time; none: the search chooses.  0: all.
  std::optional<int64_t> loss_rows = {};
  // Whether a share of the optimizer's state may be on the host, and be streamed through the
  // device.
  bool state_share = false;
  // Where saved values may be sent between forward and backward; none: nowhere.
  std::optional<OffloadTarget> send_to = {};
  size_t host_bytes = MetaStream::unlimited;  // of the host, for both
  Plan fixed = {};
};

// A plan, and what it was found to take.
struct FoundPlan {
  Plan plan = {};
  int64_t loss_rows = 0;                  // of a chunk; 0: all
  std::optional<Layout> layout = {};      // of a step's memory; none: best fit
  size_t peak = 0;                        // of the run, bytes of the device
  size_t host_bytes = 0, disk_bytes = 0;  // for what leaves the device
  double seconds = 0;                     // of a step
  std::string binding = {};               // where the step reaches its peak, in words
};

struct SearchResult {
  FoundPlan found = {};
  // Whether `found` fits.  If not, it is the plan of the smallest peak, which is the smallest
  // budget that can be met.
  bool fits = true;
  size_t keep_all_peak = 0;
  double keep_all_seconds = 0;
  // Seconds that every schedule of the step within the budget takes; 0: no bound is known.
  double lower_bound = 0;
  int rehearsals = 0;
  double plan_seconds = 0;  // that the search took
};

class Search {
 public:
  Search(SearchedStep, Levers);
  ~Search();

  // The fastest plan within a budget in bytes of the device.
  SearchResult plan(size_t budget);
  // The plan that keeps everything if it fits into so many bytes, else the fastest that fits.
  SearchResult keep_all_or_plan(size_t bytes);
  // The smallest budget that can be met: the smallest peak of any plan that the search lays out.
  size_t smallest_budget();
  // The peak of keeping everything.
  size_t keep_all_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spool
