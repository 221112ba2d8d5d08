#pragma once

// Training runs whose parameters, gradients and state are anywhere: the bits of each, and the bytes
// that it took.

#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/trainer.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {

// The bits of some steps.
struct RunBits {
  std::vector<float> numbers = {};  // losses and norms
  Bytes bytes = {};                 // of parameters and state
  bool operator==(const RunBits&) const = default;
};

// A run whose homes, and all else that changes no bit, are drawn at random.
struct HomesCase {
  explicit HomesCase(uint64_t seed);

  TrainingConfig config = {};
  StepDescription step = {};
  StepPlans resident = {}, away = {};
  std::string words = {};

 private:
  void draw_run(Random&);
  void draw_plans(Random&);
  void draw_homes(Random&, Plan&) const;
};

// Runs three steps in the foretold bytes of device and host, and expects that it takes them.
RunBits bits_as_foretold(const TrainingConfig&, const StepDescription&, StepPlans);
inline RunBits bits_as_foretold(const HomesCase& c, const StepPlans& plans) {
  return bits_as_foretold(c.config, c.step, plans);
}

// Of 256 tokens, for any step of the configuration.
TokenBatch made_up_batch(const TrainingConfig&, uint64_t step);
Machine machine_here();

}  // namespace spool::testing
