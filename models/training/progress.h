#pragma once

// What a person sees of a run: the table before step 0, then a line that changes in place, or plain
// lines every few seconds where the output is no terminal.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "spool/models/training/run_options.h"

namespace spool {

struct StepNumbers {
  int64_t step = 0;  // done, counted from 1
  float loss = 0, grad_norm = 0;
  std::optional<double> val_loss = {};
  double lr = 0, seconds = 0, tokens_per_s = 0;
  size_t peak_bytes = 0;
};

// Parameters, gradients, optimizer, activations, workspace, foretold peak, budget, step time.
std::string memory_table(const RunOptions&, const Machine&, const Report& foretold, size_t budget);

class Progress {
 public:
  explicit Progress(int64_t steps);

  void step(const StepNumbers&);
  // A line of its own, above the one that changes.
  void say(const std::string& line);
  // Ends the line that changes.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(const StepNumbers&) const;

  int64_t steps_;
  bool terminal_;
  bool open_ = false;  // a line without its end is on the terminal
  std::optional<double> seconds_per_step_;
  Clock::time_point last_{};
};

}  // namespace spool
