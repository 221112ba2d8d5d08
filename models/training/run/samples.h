#pragma once

// Text that a model writes as it is trained.

#include "spool/models/training/run/setup.h"

namespace spool {

class Samples {
 public:
  // The run outlives this.
  explicit Samples(const RunSetup& of_run) : run_(of_run) {}

  // Whether one is due between this step and the next.
  bool is_due(int64_t done) const { return run_.is_due(run_.options.sample_every, done); }
  // Tells a text, the same for the same weights and step; none if the options want none.
  void write(int64_t done) const;

 private:
  void write_text(int64_t done) const;

  const RunSetup& run_;
};

// Leaves the samples of a run out that would take longer than a step, as each of their tokens
// copies all parameters that live on the host, unless their number is given; then says so.
void leave_out_slow_samples(RunSetup&);

}  // namespace spool
