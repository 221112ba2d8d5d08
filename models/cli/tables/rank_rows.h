#pragma once

// What the table of a run says of its ranks; nothing of one that computes alone.

#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// What they divide and share, and whether they have processors enough.
std::vector<std::string> rank_lines(const RunOptions&, const PlannedRun&);
// Of the memory of a rank: what exchanges have of it, beside these bytes at the peak; of which rank
// the peak is; and what all of a machine take together, whose memory ranks of a cpu share.
std::string exchange_row(const PlannedRun&, size_t bytes);
std::string peak_note(const PlannedRun&);
std::string sum_row(const CpuArchitecture*, const PlannedRun&);
// What they send in a step, and how long it takes.
std::string exchange_rows(const PlannedRun&);
// If how they share micro-batches was chosen: the candidates, with the seconds and the peak of
// each, as planned, or of a step that keeps all.
std::string sharding_rows(const PlannedRun&);

}  // namespace spool
