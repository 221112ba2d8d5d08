#pragma once

// Times of a rehearsed step for reports: milliseconds since the step began, rounded to about a
// millionth of the step, so that they take few digits.

#include "spool/planner/rehearsal.h"

namespace spool {

class ReportClock {
 public:
  // The step must have been rehearsed with its trace.
  explicit ReportClock(const RehearsedStep&);

  // Converts seconds on the trace's clock; clamped to the step.
  double ms(double seconds) const;
  double end() const { return end_; }

 private:
  double rounded(double ms) const;

  double begin_, scale_, end_;
};

// A part of the step.
struct StepPhase {
  const char* name = "";      // "forward", "loss", "backward", "optimizer"
  double begin = 0, end = 0;  // milliseconds
};

// The phases of each micro-batch of the trace, one after the other.  The loss is the nodes from
// `loss` on; their backward is part of the phase "loss".
std::vector<StepPhase> step_phases(const RehearsedStep&, NodeId loss);

}  // namespace spool
