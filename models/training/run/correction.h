#pragma once

// The correction of a run's foretold time by its first steps, and a look for a plan that would be
// faster by it.

#include <functional>
#include <optional>

#include "spool/models/training/faster_plan.h"
#include "spool/models/training/run/clock.h"
#include "spool/models/training/run/setup.h"

namespace spool {

class ClockCorrection {
 public:
  // The setup outlives this.
  explicit ClockCorrection(const RunSetup&);

  // Enqueues a step; one that corrects has its kernels timed, where a faster plan may be looked for
  // and timing costs nothing, which is on a cpu.
  void enqueue(const std::function<void()>& step);
  // Around each step, or from the end of one to the end of the next where the next is in the queue.
  void begin_step() { clock_.begin(); }
  void end_step() { corrected_ = clock_.end(); }
  // Whether the next step completes the correction: nothing is in the queue behind it.
  bool is_due_after_next() const { return clock_.completes_next(); }
  // Tells the corrected time, if the step that ended is the one that completes the correction.
  void tell_if_complete(int64_t done);

 private:
  void look_for_a_faster_plan() const;

  const RunSetup& run_;
  StepClock clock_;
  std::optional<double> corrected_;  // seconds
  StepKernelTimes kernel_times_;     // of the steps that correct
};

}  // namespace spool
