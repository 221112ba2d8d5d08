#pragma once

// How far a training run is.

#include "spool/models/data/batch.h"
#include "spool/models/training/run/setup.h"

namespace spool {

struct RunState {
  explicit RunState(const RunSetup& run)
      : done(run.first_step), enqueued(run.first_step), evaluations(run.evaluations) {}

  int64_t done, enqueued;         // steps; of those that are enqueued, the last may not be done yet
  TokenBatch batch = {};          // of the step that was enqueued last
  EvaluationHistory evaluations;  // between steps
};

}  // namespace spool
