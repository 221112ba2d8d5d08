#pragma once

// What the table of a run says of parameters and gradients that live on the host, and of what else
// the host's memory holds; nothing of a run that has nothing there.

#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"

namespace spool {

// How many units live there, and whether the link or a cpu's own processors are slowed by it.
std::vector<std::string> home_lines(const PlannedRun&, const Machine&);
// Beside what a purpose has of the device at its peak: what it has of the host at the host's.
std::string host_note(const PlannedRun&, Purpose);

}  // namespace spool
