#pragma once

// Random plans, and the results of a step under a plan.

#include <functional>
#include <vector>

#include "spool/autograd/tape.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// A random plan for a tape's forward: any placement for any value, parameters and inputs included,
// offloads of some rows, released and fetched at sensible and at useless nodes, nested regions, and
// regions in chunks.
Plan random_plan(const spool::Program&, Random&);
bool runs_in_chunks(const Plan&);

// A step's outputs and gradients, a hash of their bits, and its peaks in bytes.
struct StepOutcome {
  uint64_t bits = 0;
  std::vector<std::vector<float>> values = {};  // of a plan that keeps all, or runs in chunks
  size_t device_peak = 0, host_peak = 0;
};

// A step to run under a plan: makes a tape with these options, goes forward and backward, and
// returns the tensors to compare (none on meta, whose tensors have no values).
using PlannedStep = std::function<std::vector<Tensor>(Stream&, TapeOptions)>;

// The peaks of the step under the plan, foretold on meta.
StepOutcome foretell(const PlannedStep&, const Plan&, const Architecture&);
// Runs the step with an arena and a host slab of just the foretold sizes.
StepOutcome perform(const PlannedStep&, const Plan&, const StepOutcome& foretold,
                    Device device = {});

// Expects that under each of `count` random plans the step has the bits of the step that keeps all
// values, or, in chunks, its numbers up to the order of sums, and the foretold peaks.
void expect_as_kept(const PlannedStep&, int count, Device,
                    const std::function<Plan(Random&)>& draw);

}  // namespace spool::testing
