#pragma once

// A run's log: one JSON object per line.  The first has the format's version and the configuration;
// after it comes one for each step and one for each evaluation, one for the correction of the
// foretold time of a step, and, with ranks, one of their numbers with each checkpoint and at the
// end.

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "spool/models/training/run/listener.h"
#include "spool/models/training/run_options.h"

namespace spool {

// Where a run resumes.  It may first evaluate there, which replaces what the
// log has of such an evaluation.
struct ResumedLog {
  int64_t steps_done = 0;
  bool evaluates_first = false;
};

// Throws if no log can be written to this file, which may only exist if the run resumes.
void check_log_file(const std::string&, bool resumes);

class RunLog final : public RunListener {
 public:
  // Starts a log with the configuration and the foretold peak, in bytes.  A run that resumes keeps
  // the lines of what it does not do again, so that each step and evaluation is logged once.
  // Throws as check_log_file() does.  The listener, which outlives the log, is told of the first
  // line that cannot be written: it is left out.
  RunLog(const RunOptions&, size_t foretold_peak, std::optional<ResumedLog>, RunListener&);

  void step(const StepNumbers&) override;
  void evaluated(const EvaluationNumbers&) override;
  void corrected(const CorrectedTime&) override;
  void ranks(int64_t steps_done, const std::vector<RankNumbers>&) override;

 private:
  void write_line(const nlohmann::json& object);
  int append(nlohmann::json object);
  void cut_back(uintmax_t bytes);

  size_t foretold_peak_;
  std::string path_;
  std::ofstream file_;
  RunListener& listener_;
  bool lacks_lines_ = false;
};

}  // namespace spool
