#pragma once

// The page of a sweep: memory against time, and foretold against measured peaks
// (models/report/report_page.h).

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spool::benchmarks {

// Of what peak_memory reports, with the name of its model; where steps ran, what they took.
// {"format": "spool-sweep-report", "format_version": 1, "title": ..., "points": [{"name", "group",
// "peak_bytes", "step_ms", "foretold_peak_bytes"}, ...]}
nlohmann::json sweep_report(const nlohmann::json& of_peak_memory);

}  // namespace spool::benchmarks
