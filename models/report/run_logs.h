#pragma once

// Reads the logs of runs, which are lines of JSON (models/training/run/log.h), for a page that
// draws several runs together:
//
//   {"format": "spool-plot", "format_version": 1,
//    "runs": [{"name": "a", "log": [...]}, ...]}              step_history.h

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spool/models/report/step_history.h"

namespace spool {

struct LoggedRun {
  std::vector<StepEntry> steps = {};
  std::string broken_off = {};  // in words, if the last line of the log is incomplete
};

// Reads `max` steps of a log, or of the page that `spool train --report` writes.  Throws if the
// file is neither, or if a line of it is wrong, unless the last one is incomplete.
LoggedRun read_run_log(const std::filesystem::path&, size_t max);

// The distinct parts of paths: without the parts at the front and at the back that all have in
// common, or the name of the file if nothing else is left.
std::vector<std::string> short_names(const std::vector<std::filesystem::path>&);

// At most 500 runs, and for each as many steps as keep the page small.
inline constexpr size_t max_plotted_runs = 500;
size_t plotted_steps(size_t runs);
nlohmann::json plot_report(const std::vector<std::string>& names, const std::vector<LoggedRun>&);

}  // namespace spool
