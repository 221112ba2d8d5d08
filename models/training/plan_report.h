// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// What was planned, as JSON for programs.  A plan that fits:
//
//   {"format": "spool-plan-report", "format_version": 1, "machine": "h200",
//    "budget_bytes": ..., "foretold_peak_bytes": ..., "foretold_step_ms": ...,
//    "keep_all_peak_bytes": ..., "keep_all_step_ms": ...,    of keeping everything
//    "lower_bound_ms": ..., "gap": ...,                      foretold_step_ms / lower_bound_ms - 1
//    "plan_ms": ..., "rehearsals": ...,                      what the search took
//    "fingerprint": "00d1e9bbe4c2a7f1",                      of the step's tape
//    "loss_chunk": ..., "region_chunks": [8, ...],           rows (0: all); chunks of each region
//    "state_bytes_on_device": ..., "host_bytes": ...,
//    "peak_bytes_by_purpose": {"parameters": ..., ...},
//    "layers": [{"ranges": [[0, 13]], "treatment": "recompute ln_1 gelu"}, ...],
//    "frontier": [{"budget_bytes": ..., "foretold_peak_bytes": ..., "foretold_step_ms": ...,
//                  "lower_bound_ms": ..., "gap": ..., "loss_chunk": ...,
//                  "region_chunks": [...]}, ...]}            if asked for
//
// A plan whose copies are set by hand has no bound: null.  If no plan fits: "format" and
// "format_version" and
//
//   {"error": "the smallest plan of this run needs ...", "budget_bytes": ...,
//    "minimum_budget_bytes": ..., "binding_op": "the backward of linear (node 37)"}

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "spool/models/training/planned_run.h"

namespace spool {

// Of a run that was searched for; the error if it has a refusal.
nlohmann::json plan_report(const PlannedRun&, const Machine&);
// The list for "frontier".
nlohmann::json frontier_report(const std::vector<PlannedRun>&);

// Throws if the file exists and is not a report, or cannot be written.
void check_report_file(const std::filesystem::path&);
void write_report(const std::filesystem::path&, const nlohmann::json&);

// Seconds above the lower bound, as a part of it.
double gap(const PlannedRun&);

}  // namespace spool
