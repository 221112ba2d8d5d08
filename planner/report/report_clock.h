#pragma once

// The times of a rehearsed step as reports have them: milliseconds since the step began, rounded to
// about a millionth of it, so that they take few digits.

#include "spool/planner/rehearsal.h"

namespace spool {

class ReportClock {
 public:
  // Of a step that was rehearsed with its trace.
  explicit ReportClock(const RehearsedStep&);

  // Of seconds on the clock of the trace; within the step.
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

// One after the other, for each micro-batch of the trace.  The nodes of the loss are those from
// `loss` on; their backward is a part of it.
std::vector<StepPhase> step_phases(const RehearsedStep&, NodeId loss);

}  // namespace spool
