#pragma once

// Refuses a run that does not fit into the available memory, and says what would fit.

#include <optional>

#include "spool/models/training/planned_run.h"

namespace spool {

// An Error (memory) if the foretold peak is above the run's budget or the device's memory, or if
// the host has too little for what is offloaded; nothing if the run fits.  The error says which
// number of threads of a cpu, or which batch, would fit.  For plan_run() and for runs that were
// searched for, from a request with a limit.
std::optional<Error> refuse(const PlannedRun&, const RunRequest&, const Machine&);

// The bytes that a run may take on a device where others use memory, too: what is free there, less
// a tenth on a cpu.
size_t free_memory(Device);

}  // namespace spool
