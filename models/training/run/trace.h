#pragma once

// Writes a trace file, in JSON, of one step of a run: as foretold and as measured, one above the
// other (planner/report/timeline.h).

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/training/planned_run.h"
#include "spool/planner/report/timeline.h"

namespace spool {

class StepTrace {
 public:
  // Throws if no trace can be written to this file.
  explicit StepTrace(std::filesystem::path);
  // Writes none.
  StepTrace() = default;

  // Rehearses the step; returns a row for the memory table.
  std::string foretell(const TrainingConfig&, const StepPlans&, const Machine&);
  // Runs the step on the stream, traced, and waits for it.
  void measure(Stream&, const std::function<void()>& step);
  // Writes the file; returns a line that says so.
  std::string write(int64_t step) const;

 private:
  std::filesystem::path path_;
  std::vector<NamedTrace> traces_;
};

}  // namespace spool
