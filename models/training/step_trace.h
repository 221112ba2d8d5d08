#pragma once

// A trace file of one step of a run: as foretold and as measured, one above the other
// (planner/report/timeline.h).

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/training/planned_run.h"
#include "spool/planner/report/timeline.h"

namespace spool {

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
