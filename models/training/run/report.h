#pragma once

// The page of a run (models/report/report_page.h): its plan, and its steps as far as they are done.
// To the JSON of the plan (plan_report.h) it adds
//
//   "run": {"directory": "/home/me/runs/gpt2-124m",
//           "step": ..., "steps": ...,  those done, and all
//           "plan_since_step": ...,     steps before had other plans, or the page tells nothing of
//           them "measured_peak_bytes": ..., "foretold_peak_bytes": ..., "measured_step_ms": ...,
//           the median of the steps with this plan "foretold_step_ms": ..., "corrected_step_ms":
//           ..., "log": [...]}               models/report/step_history.h
//
// null: not yet known.  A run that resumes goes on in the page: its first steps are in the log, and
// what was measured counts if the plan is the same.

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "spool/models/report/step_history.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/listener.h"

namespace spool {

class RunReport final : public RunListener {
 public:
  // What a run with these options is planned to take.  The listener outlives the report; it is told
  // once if the page cannot be written.
  RunReport(const RunOptions&, const PlannedRun&, const Machine&, const Frontier&, RunListener&);
  ~RunReport() override;

  // The run resumes after that many steps: those that the page tells of this run are its first.
  void resume_after(int64_t step);
  void step(const StepNumbers&) override;
  void evaluated(const EvaluationNumbers&) override;
  void corrected(const CorrectedTime&) override;
  void flush(size_t peak) override;
  // Writes the page; returns whether it was written.
  bool write();
  // Writes the page of a run that does not begin: its plan, and what the page told of its steps.
  // Throws if it cannot be written.
  void write_plan() const;

 private:
  nlohmann::json with_run() const;
  std::optional<double> measured_ms() const;

  std::filesystem::path page_;
  std::string directory_;  // absolute
  RunListener& listener_;
  std::unique_ptr<nlohmann::json> plan_;
  StepHistory history_;
  int64_t steps_, done_ = 0, plan_since_ = 0;
  size_t peak_ = 0;          // bytes; 0: no step was measured
  double corrected_ms_ = 0;  // 0: not yet known
  bool resumes_ = false, is_told_ = false;
};

}  // namespace spool
