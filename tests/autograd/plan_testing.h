#pragma once

// Plans drawn at random, and what a run under a plan comes to.

#include "spool/autograd/tape.h"
#include "spool/models/families/gpt2.h"
#include "spool/planner/rehearsal.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// Of the forward part of a tape: any placement for any value, parameters and inputs included, some
// rows of some, places of release and fetch that make sense or do not, and regions that nest.
Plan random_plan(const Tape& survey, Random&);

// What a step left: a hash of the bits of its outputs and gradients, and the peaks.
struct StepOutcome {
  uint64_t bits = 0;
  size_t device_peak = 0, host_peak = 0;
};

// What is run under a plan: allocates what it needs on the stream, makes a tape with these options,
// goes forward and backward, and returns what is to be compared, on streams that can be read.
using PlannedStep = std::function<std::vector<Tensor>(Stream&, TapeOptions)>;

// The peaks of the step under the plan, foretold on meta.
StepOutcome foretell(const PlannedStep&, const Plan&, const Architecture&);
// Run on a stream and a slab of just the foretold sizes.
StepOutcome perform(const PlannedStep&, const Plan&, const StepOutcome& foretold,
                    Device device = {});

// The step under so many plans, drawn one after the other, has the bits of the step that keeps all,
// and the peaks foretold.
void expect_as_kept(const PlannedStep&, int count, Device,
                    const std::function<Plan(Random&)>& draw);

// A step of GPT-2 on made-up tokens; returns the loss and all gradients.
struct Gpt2Step {
  Gpt2Config config{.layers = 3, .heads = 2, .channels = 32, .context = 24, .vocabulary = 99};
  int64_t B = 2, T = 24;
  float dropout = 0.1f;

  std::vector<Tensor> operator()(Stream&, TapeOptions) const;
  Var loss(Gpt2&, Tape&, Stream&) const;
};
void expect_as_kept(const Gpt2Step&, int count, Device);

}  // namespace spool::testing
