#pragma once

// What the tests of traces share: a step that is traced, foretold and measured, and copies that
// compute waits for.

#include <vector>

#include "spool/models/training/step_trace.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {

using Spans = std::vector<TraceSpan>;

constexpr size_t plenty_to_trace = size_t{64} << 20;

TrainingConfig config_to_trace();

struct Measured {
  Spans spans;
  uint64_t launches = 0;
  MemoryStats memory = {};
};

// The second of three steps.
Measured measure(const TrainingConfig&, const TrainingPlans&, Stream&);
Spans foretell(const TrainingConfig&, const TrainingPlans&, Stream& like);

// Out and back again while compute goes on, then waits: what a step that offloads does.
Spans there_and_back(Stream&, double seconds_of_the_disk);
constexpr double long_enough = 0.05;  // seconds, of a disk

}  // namespace spool::testing
