#pragma once

// A training run on ranks: threads of this program, processes that it starts, or, in one of those
// or under a launcher, the rank that this process is.

#include <optional>

#include "spool/models/training/run_options.h"
#include "spool/runtime/ranks/launcher.h"

namespace spool {

// Throws unless the options and the launcher, if there is one, say the same ranks.
void check_launch(const RunOptions&, const std::optional<LaunchedRank>&);

// Each returns the program's exit code.
int train_on_threads(const RunOptions&);
int train_on_processes(const RunOptions&);
int train_as_rank(const RunOptions&, const LaunchedRank&, const MeetingPlace&);

}  // namespace spool
