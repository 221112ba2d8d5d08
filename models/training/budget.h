#pragma once

// Refuses a run that does not fit the memory there is, and says what would fit.

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// Throws Error (memory) if the foretold peak is above the budget or the device's memory, both in
// bytes, or if the host has too little for what is offloaded.
void check_budget(const RunOptions&, const Machine&, const Report& foretold, const SampleLength&,
                  size_t budget);

}  // namespace spool
