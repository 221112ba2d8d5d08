// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Refuses a run that does not fit into the available memory, and says what would fit.

#include <optional>
#include <string>

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

// Bytes that the program is expected to take of a cpu's memory besides a run's arena: what it has
// now, and an allowance for libraries and threads that was measured (benchmarks/results).  0 for
// other machines.
size_t expected_besides(const Machine&);

// What a run has to fit into on a device of this machine.  A budget above what there is for the
// arena becomes that.
MemoryLimit memory_limit(Device, size_t budget, const Machine&);
// A sentence if the budget that was asked for is above the limit's most; else empty.
std::string lowered_budget(size_t asked, const MemoryLimit&);
// A sentence if the run, with the program itself, takes more of a cpu's memory than is available
// now; else empty.
std::string warn_of_memory(const PlannedRun&, const MemoryLimit&);

}  // namespace spool
