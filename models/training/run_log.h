#pragma once

// A run's log: one JSON object per line.  The first has the format's version and the configuration;
// after it comes one for each step and one for each evaluation.

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace spool {

class RunLog {
 public:
  // A log that writes nothing.
  RunLog() = default;
  // Starts a log with `head`.  A run that resumes, with `resume_at` as its next step, keeps the
  // lines of the steps before, so that each step is logged once.  Throws if the file exists and is
  // not the log of a run, or if the run is new.
  RunLog(const std::string& path, const nlohmann::json& head, std::optional<int64_t> resume_at);

  // Throws if it cannot be written.
  void write(const nlohmann::json& object);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace spool
