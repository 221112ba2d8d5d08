#pragma once

// The log of a run: one JSON object a line.  The first has the format's version and the
// configuration, then there is one for each step, and one for each evaluation.

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace spool {

class RunLog {
 public:
  // Writes nowhere.
  RunLog() = default;
  // Begins a log with `head`; or, where the next step will be `resume_at`, keeps what the log has
  // of the steps before it, so that every step is there once.  Throws rather than lose a file that
  // is something else.
  RunLog(const std::string& path, const nlohmann::json& head, std::optional<int64_t> resume_at);

  // Throws if it cannot be written.
  void write(const nlohmann::json& object);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace spool
