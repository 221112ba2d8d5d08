#pragma once

// What `--trace FILE` asks for: one step of a run as it was foretold and as it went, below one
// another in one file (planner/trace_file.h).

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/training/trainer.h"
#include "spool/planner/report/timeline.h"

namespace spool {

// A step as it goes on that machine.
std::vector<TraceSpan> foretell_step(const TrainingConfig&, const TrainingPlans&, const Machine&);

class StepTrace {
 public:
  // Throws where no trace can be written there.
  explicit StepTrace(std::filesystem::path);

  // Returns what to say of it: a row for the table.
  std::string foretell(const TrainingConfig&, const TrainingPlans&, const Machine&);
  // Does the step on the stream, and waits for it.
  void measure(Stream&, const std::function<void()>& step);
  // Writes the file; returns what to say of it.
  std::string write(int64_t step) const;

 private:
  std::filesystem::path path_;
  std::vector<NamedTrace> traces_;
};

}  // namespace spool
