#pragma once

// Policies as flags set them by hand (planner/policy.h), the same for all layers: what is
// recomputed, rows of the MLPs and of the loss, what is offloaded, and the optimizer's state.  They
// stand beside a search, so that fixing a flag never helps.  No model of copies is exact, so each
// is judged by a rehearsal, and laid out only where it would win.  The smallest budget is found
// from them by bytes alone, one lever changed at a time.

#include <map>

#include "spool/planner/policy.h"
#include "spool/planner/search/measured_options.h"
#include "spool/planner/search/trials.h"

namespace spool {

class HandPolicies {
 public:
  // The arguments must outlive it.
  HandPolicies(const SearchedStep&, const MeasuredSegments&, const Levers&, Trials&);

  // The fastest policy within the budget that takes fewer than `seconds`; null if there is none.
  const FoundPlan* fastest_within(size_t budget, double seconds);
  // The smallest policy of less than `bytes`; null if there is none.
  const FoundPlan* smallest_below(size_t bytes);

 private:
  struct Flags {
    size_t list = 0;  // of what is recomputed
    int64_t mlp_rows = 0, loss_rows = 0;
    Offloading offload = Offloading::none;
    OptimizerState state = OptimizerState::device;
    auto operator<=>(const Flags&) const = default;
    bool is_like(const Flags& other) const {
      return list == other.list && offload == other.offload && state == other.state;
    }
  };
  const std::vector<Flags>& grid();
  // Seconds of the policy without copies and chunks of the loss, a lower bound.
  double seconds_without_copies(const Flags&);
  std::vector<int64_t> loss_rows_of_grid() const;
  // Policies that differ in one lever, or in chunks alone.
  std::vector<Flags> neighbours(const Flags&) const;
  static Flags with_rows(Flags, int64_t mlp_rows, int64_t loss_rows);
  std::vector<Flags> other_chunks(const Flags&) const;
  std::vector<int64_t> mlp_ladder() const;  // rows, falling
  // For each number of rows of the MLPs, the policy of this kind with the fewest chunks of the loss
  // whose live bytes are within `bytes`; the fastest first.
  std::vector<Flags> fewest_chunks_within(const Flags& kind, size_t bytes);
  const FoundPlan* faster_with_other_chunks(const Flags& kind, size_t budget, double& seconds);
  const FoundPlan* faster_with_more_rows(const Flags&, size_t budget, double& seconds);
  std::vector<Flags> descents();
  std::vector<Flags> with_near_chunks(const std::vector<Flags>&);
  void sort_by_live_bytes(std::vector<Flags>&);
  size_t live_bytes_of(const Flags&);
  Plan plan_of(const Flags&) const;
  Trials::Trial& trial(const Flags&);
  const FoundPlan* if_faster(Trials::Trial&, size_t budget, double& seconds);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Levers& levers_;
  Trials& trials_;
  int64_t mlp_extent_ = 0;  // rows of the MLPs, if they may run in chunks
  std::map<Flags, Trials::Trial*> known_;
  std::vector<Flags> grid_;  // by rising seconds without copies
};

}  // namespace spool
