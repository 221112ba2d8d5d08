#pragma once

// A training run prints nothing.  It reports to a listener.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "spool/models/training/planned_run.h"

namespace spool {

struct RunOptions;

// The numbers of a finished step.
struct StepNumbers {
  int64_t step = 0;  // counted from 1
  float loss = 0, grad_norm = 0;
  std::optional<double> val_loss = {};
  double lr = 0, seconds = 0, tokens_per_s = 0;
  size_t peak_bytes = 0;
  int64_t tokens = 0;  // that the run has trained on
};

class RunListener {
 public:
  virtual ~RunListener() = default;

  // Text is being encoded: bytes done, of total bytes.
  virtual void encoding(size_t done, size_t total) = 0;
  // The run is planned.  If it does not fit, it is refused after this call.
  virtual void planned(const RunOptions&, const Machine&, const PlannedRun&) = 0;
  virtual void step(const StepNumbers&) = 0;
  // The last step is done.
  virtual void finished() = 0;
  // The run was asked to stop, and has written a checkpoint of this step.
  virtual void stopped(int64_t step) = 0;
  // Any other message, of one or more lines.
  virtual void say(const std::string& text) = 0;
};

}  // namespace spool
