#pragma once

// Trains the steps of a run.  Where nothing happens between two of them, the second is in the
// device's queue before the result of the first is awaited.

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
  // or a gradient is not finite, and Error (file) if the data cannot be read any more.
  StepNumbers train_next(bool stops);
  // Writes the trace after the step that it is of.
  void write_trace_if_complete();
  // Whether a trace is still to come.
  bool is_trace_missing() const { return run_.trace && state_.done <= run_.traced_step(); }

 private:
  bool is_traced(int64_t step) const { return run_.trace && step == run_.traced_step(); }
  bool may_run_ahead(int64_t step) const;
  void read_batch(int64_t step);
  bool can_read_batch(int64_t step);
  void enqueue(int64_t step, bool stops);

  const RunSetup& run_;
  RunState& state_;
  Checkpoints& checkpoints_;
  ClockCorrection& correction_;
  std::function<bool(int64_t done)> is_due_;
  TokenBatch next_;        // read here first, so that a failure leaves the last batch whole
  double step_began_ = 0;  // by the host's clock
};

}  // namespace spool
