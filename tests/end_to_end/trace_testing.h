#pragma once

// A traced training step, foretold and measured.

#include <vector>

#include "spool/models/training/run/trace.h"
#include "tests/kernels/trace_testing.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {

TrainingConfig config_to_trace();

struct Measured {
  Spans spans;
  uint64_t launches = 0;
  MemoryStats memory = {};
};

// Measures the second of three steps.
Measured measure(const TrainingConfig&, const StepPlans&, Stream&);
Spans foretell(const TrainingConfig&, const StepPlans&, Stream& like);

}  // namespace spool::testing
