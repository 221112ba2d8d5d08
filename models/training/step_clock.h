#pragma once

// Corrects the foretold time of a run's steps by one factor, measured in steps 2 to 4 after the
// run's start, which holds for this run only.

#include <optional>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

class StepClock {
 public:
  // On a cpu it counts the processor time of this process over the stream's threads, which other
  // programs hardly change; on other devices wall time.
  StepClock(const Stream&, double foretold);

  // Call them around each step, or, if the next step is already enqueued, from end to end.
  void begin() { began_ = now(); }
  // Returns the corrected seconds of a step once, after the step that completes the correction.
  std::optional<double> end() { return add(now() - began_); }
  // Adds a step of this duration.
  std::optional<double> add(double seconds);

  // Whether the next step counts for the correction.
  bool counts_next() const;
  // Whether it is the last one that counts, after which a faster plan may be searched for.
  bool completes_next() const;
  double foretold() const { return foretold_; }
  // Measured over foretold seconds; 1 before it is known.
  double factor() const { return factor_; }

 private:
  double now() const;

  int threads_;  // of a cpu; 0: another device
  double foretold_, began_ = 0, factor_ = 1;
  int steps_ = 0;
  std::vector<double> seconds_;
};

}  // namespace spool
