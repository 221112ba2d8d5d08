#pragma once

// Refuses a run that does not fit into the available memory, and says what would fit.

#include "spool/models/training/planned_run.h"

namespace spool {

// Throws Error (memory) if the foretold peak is above the budget or the device's memory, both in
// bytes, or if the host has too little for what is offloaded.  The run must have been planned from
// this request, for this machine.
void check_budget(const PlannedRun&, const RunRequest&, const Machine&, const Device&,
                  size_t budget);

}  // namespace spool
