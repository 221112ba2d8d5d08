#pragma once

// A training run on ranks: threads of this program, processes that it starts, or, in one of those
// or under a launcher, the rank that this process is.

#include "spool/models/cli/ranks/launched_command.h"

namespace spool {

// Each returns the program's exit code.
int train_on_threads(const RunOptions&);
int train_on_processes(const RunOptions&);
RankWork training_as_rank(const RunOptions&);

}  // namespace spool
