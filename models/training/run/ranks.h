#pragma once

// What the ranks of a run agree on before its first step: rank 0 plans, and the others take its
// plan and rehearse it; then all compare what would make them differ, or wait for one another.

#include <optional>

#include "spool/models/training/run/setup.h"

namespace spool {

// The mesh of the run's ranks, on this rank.
Mesh mesh_of(const RunSetup&);

// On rank 0: gives the others the plan of a run that is not refused.
void give_plan(const RunSetup&);
// On the others: takes the plan, and foretells what it takes of this rank.
void take_plan(RunSetup&);

// Throws an error that names two ranks and the first thing in which they differ.
void compare_ranks(const RunSetup&);

}  // namespace spool
