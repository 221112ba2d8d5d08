#pragma once

// Trains the steps of a run.  Where nothing happens between two of them, the second is in the
// device's queue before the result of the first is awaited.

#include <exception>
#include <functional>

#include "spool/models/training/run/checkpoints.h"
#include "spool/models/training/run/clock.h"

namespace spool {

class TrainingSteps {
 public:
  // All outlive this.  is_due(done) says whether something happens between this step and the next.
  TrainingSteps(const RunSetup&, RunState&, Checkpoints&, ClockCorrection&,
                std::function<bool(int64_t done)> is_due);

  // Trains a step.  Enqueues none behind it if the run stops.  Throws Error (numeric) if the loss
  // or a gradient is not finite, and Error (file) if the data cannot be read any more.  Several
  // ranks read the data of a step during the one before: one that cannot asks all to stop.
  StepNumbers train_next(bool stops);
  // Why this rank asked all to stop, if it was that.
  const std::exception_ptr& failure() const { return failure_; }
  // Writes the trace after the step that it is of.
  void write_trace_if_complete();
  // Whether a trace is still to come.
  bool is_trace_missing() const { return run_.trace && state_.done <= run_.traced_step(); }

 private:
  bool is_traced(int64_t step) const { return run_.trace && step == run_.traced_step(); }
  bool may_run_ahead(int64_t step) const;
  void read_next(int64_t step);
  void read_batch(int64_t step);
  bool can_read_batch(int64_t step);
  bool can_go_on(int64_t step);
  void enqueue(int64_t step, bool stops);

  const RunSetup& run_;
  RunState& state_;
  Checkpoints& checkpoints_;
  ClockCorrection& correction_;
  std::function<bool(int64_t done)> is_due_;
  TokenBatch next_;         // read here first, so that a failure leaves the last batch whole
  int64_t next_step_ = -1;  // of which next_ is; -1: of none
  std::exception_ptr failure_;
  double step_began_ = 0;  // by the host's clock
};

}  // namespace spool
