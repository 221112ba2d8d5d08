#pragma once

// What is foretold of parameters and gradients that live on the host, for tables and as a member of
// the JSON report (plan_report.h):
//
//   {"words": "parameters and gradients of 33 of 34 units on the host",
//    "units": 34, "parameters_away": 33, "gradients_away": 33,      of units
//    "update": "end",                        or "backward"
//    "link_limit_tokens": 4631}              of a micro-batch, below which the link is the limit
//                                            (planner/report/link_limit.h); 0: never; null: always,
//                                            or the device is a cpu, which has no link

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "spool/models/training/planned_run.h"

namespace spool {

// The tokens of a micro-batch below which copies of what lives on the host take longer than its
// work, rounded up; none if they always do, or the device is a cpu, whose own processors copy.
// The step must have been rehearsed with its trace.
std::optional<int64_t> link_limit_tokens(const PlannedRun&, const Machine&, const RehearsedStep&);

// "the link is the limit below 4631 tokens a micro-batch"; empty if micro-batches have as many, or
// there is no link.
std::string link_in_words(const PlannedRun&, const Machine&, const RehearsedStep&);
// The same of a step that is rehearsed here if something lives on the host.
std::string link_in_words(const PlannedRun&, const Machine&);

// Null if nothing lives on the host and all is updated at the end.
nlohmann::json homes_report(const PlannedRun&, const Machine&, const RehearsedStep&);

}  // namespace spool
