#pragma once

// Reports a sweep: memory against time, and foretold against measured peaks, for the page of
// models/report/report_page.h.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spool::benchmarks {

// Converts the report of peak_memory, with the name of its model, and measured times if steps ran,
// to {"format": "spool-sweep-report", "format_version": 1, "title": ..., "points": [{"name",
// "group", "peak_bytes", "step_ms", "foretold_peak_bytes"}, ...]}
nlohmann::json sweep_report(const nlohmann::json& of_peak_memory);

}  // namespace spool::benchmarks
