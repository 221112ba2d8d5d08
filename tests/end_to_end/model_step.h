#pragma once

// Runs a step of a model on made-up tokens, for tests of plans.

#include "spool/models/families/gpt2.h"
#include "tests/autograd/plan_testing.h"

namespace spool::testing {

// Runs the step; returns the loss and all gradients.
struct ModelStep {
  ModelConfig config =
      Gpt2Config{.layers = 3, .heads = 2, .channels = 32, .context = 24, .vocabulary = 99};
  int64_t B = 2, T = 24;
  float dropout = 0.1f;
  bool packed = false;  // rows have texts of 7 tokens, and what is left

  std::vector<Tensor> operator()(Stream&, TapeOptions) const;
  Var loss(Model&, Tape&, Stream&) const;
};

// Expects that the step under `count` random plans has the bits of the step that keeps all values,
// and the foretold peaks.
void expect_as_kept(const ModelStep&, int count, Device);

}  // namespace spool::testing
