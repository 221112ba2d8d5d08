#pragma once

// Refuses a run that does not fit into the available memory, and says what would fit.

#include "spool/models/training/planned_run.h"

namespace spool {

// What a run has to fit into.
struct MemoryLimit {
  Device device = {};
  size_t budget = 0;            // bytes
  bool batch_is_fixed = false;  // as that of a run that resumes is
};

// Throws Error (memory) if the foretold peak is above the budget or the device's memory, or if the
// host has too little for what is offloaded.  The error says which number of threads of a cpu, or
// which batch, would fit.  The run must have been planned from this request, for this machine.
void check_budget(const PlannedRun&, const RunRequest&, const Machine&, const MemoryLimit&);

}  // namespace spool
