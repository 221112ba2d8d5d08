#pragma once

// Corrects the foretold time of a run's steps by one factor, measured in steps 2 to 4 after the
// run's start, which holds for this run only.

#include <functional>
#include <optional>
#include <vector>

#include "spool/models/training/faster_plan.h"
#include "spool/models/training/run/setup.h"

namespace spool {

class StepClock {
 public:
  // On a cpu it counts the processor time of this process over the stream's threads, which other
  // programs hardly change; on other devices wall time.
  StepClock(const Stream&, double foretold);

  // Call them around each step, or, if the next step is already enqueued, from end to end.
  void begin() { began_ = now(); }
  // Returns the corrected seconds of a step once, after the step that completes the correction.
  std::optional<double> end() { return add(now() - began_); }
  // Adds the next step, which took `seconds`.
  std::optional<double> add(double seconds);

  // Whether the next step counts for the correction.
  bool counts_next() const;
  // Whether it is the last one that counts, after which a faster plan may be searched for.
  bool completes_next() const;
  double foretold() const { return foretold_; }
  // Measured over foretold seconds; 1 before it is known.
  double factor() const { return factor_; }

 private:
  double now() const;

  int threads_;  // of a cpu; 0: another device
  double foretold_, began_ = 0, factor_ = 1;
  int steps_ = 0;
  std::vector<double> seconds_;
};

// Corrects the foretold time of a run, and looks for a plan that would be faster by it.
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
