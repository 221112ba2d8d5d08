#pragma once

// Text that a model writes as it is trained.

#include "spool/models/training/run/setup.h"

namespace spool {

struct Samples {
  const RunSetup& run;

  // Whether one is due between this step and the next.
  bool is_due(int64_t done) const { return run.is_due(run.options.sample_every, done); }
  // Tells a text, the same for the same weights and step; none if the options want none.
  void write(int64_t done) const;
};

}  // namespace spool
