// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The page of a run (models/report/report_page.h): its plan, and its steps as far as they are done.
// To the JSON of the plan (plan_report.h) it adds
//
//   "run": {"directory": "runs/gpt2-124m", "step": ..., "steps": ...,      steps done, and of all
//           "measured_peak_bytes": ..., "foretold_peak_bytes": ...,
//           "foretold_step_ms": ..., "corrected_step_ms": ...,             null: not yet known
//           "log": [...]} models/report/step_history.h

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spool/models/report/step_history.h"
#include "spool/models/training/frontier.h"
#include "spool/models/training/run_listener.h"
#include "spool/models/training/run_log.h"

namespace spool {

class RunReport {
 public:
  // What a run with these options is planned to take.  The listener outlives the report.
  RunReport(const RunOptions&, const PlannedRun&, const Machine&, const Frontier&, RunListener&);
  ~RunReport();

  // The run resumes after so many steps: those that the page tells of this run are its first ones.
  void resume_after(int64_t step);
  void add(const StepNumbers&);
  void add(const EvaluationNumbers&);
  void add(const CorrectedTime&);
  // Writes the page of a run that is to have so many steps.  If it cannot be written the listener
  // is told, once.
  void write(int64_t steps);
  // Writes the page of the plan alone; throws if it cannot be written.
  void write_plan() const;

 private:
  std::filesystem::path page_;
  std::string directory_;
  RunListener& listener_;
  std::unique_ptr<nlohmann::json> plan_;
  StepHistory history_;
  int64_t done_ = 0;
  size_t peak_ = 0;       // bytes; 0: no step was measured
  double corrected_ = 0;  // seconds; 0: not yet known
  bool is_told_ = false;
};

}  // namespace spool
