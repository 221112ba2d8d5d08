#pragma once

// What the ranks of a run agree on before its first step: rank 0 plans, and the others take its
// plan and rehearse it; then all compare what would make them differ, or wait for one another.
// Later rank 0 tells what each of them took.

#include <optional>

#include "spool/models/training/run/setup.h"

namespace spool {

// Gives each rank its part of the processors, unless threads are set, and on GPUs one of its own,
// by which it then exchanges.
void give_part_of_machine(RunOptions&, std::shared_ptr<Communicator>& ranks);

// on_device() of ranks that share micro-batches or a model: what memory of it their messages take
// is taken.
std::shared_ptr<Communicator> connected(const std::shared_ptr<Communicator>&, Device);

// The least of what the ranks give, which all call it.
size_t least_of_ranks(size_t bytes, Communicator&);
// On GPUs: what the one with the least memory has free, which kernels that ran may have changed.
// Nothing without ranks, which all call it.
void find_least_memory(RunOptions&, Communicator* ranks);

// The micro-batches that rank 0 has chosen become all ranks', so that all measure the same kernels.
void share_split(TrainingConfig&, Communicator&);
// On rank 0: gives the others the plan of a run that is not refused.
void give_plan(const RunSetup&);
// On the others: takes the plan and the link, and foretells what the plan takes of this rank.
void take_plan(RunSetup&);

// Throw an error that names two ranks and the first thing in which they differ; nothing without
// ranks.  Before and after one of them has planned.
void compare_settings(const RunSetup&);
void compare_plans(const RunSetup&);

// With ranks, tells what each has taken and sent; all of them call it between steps.
void tell_ranks(const RunSetup&, int64_t steps_done);

}  // namespace spool
