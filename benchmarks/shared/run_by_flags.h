#pragma once

// A run that is planned from flags, as `spool plan` plans it for a machine that is not here.

#include <memory>
#include <string>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool::benchmarks {

// "--seq 512 --recompute block" as the settings of a run.  Throws unless each flag has one text.
GivenTexts texts_of(const std::string& flags);
// The reverse.
std::string flags_of(const GivenTexts&);

// The machine by its name and the memory of its host; `cpu` is that of machine_of.h.
struct Place {
  std::string machine = {}, host_memory = {};
};

// The planner of the run; no plan is too large for the machine's memory.
std::unique_ptr<RunPlanner> planner_of(const GivenTexts&, const Place&);

}  // namespace spool::benchmarks
