#pragma once

// The memory of a training step, laid out before the first one.  Its micro-steps are the phases of
// the layout: the first, which makes the gradients, those in the middle, all alike, and the last,
// which ends in the optimizer; where there is but one, it is the first.

#include "spool/models/training/trainer.h"

namespace spool {

// So many micro-batches show all that more of them do.
constexpr int64_t distinct_micro_batches = 3;

constexpr size_t step_phase(int64_t micro, int64_t accumulate) {
  if (micro == 0) return 0;
  return micro + 1 < accumulate ? 1 : 2;
}

// Of a step of this run on such a machine, its layout aside.  None where the arena's own placing
// takes no more.
std::optional<Layout> lay_out_step(const TrainingConfig&, TrainingPlans, const Machine&);

// What a step allocates, by a rehearsal.
Lifetimes record_step(const TrainingConfig&, const TrainingPlans&, const Machine&);

}  // namespace spool
