#pragma once

// Finds the machine that a benchmark plans for.

#include <string>

#include "spool/planner/machines/machine_text.h"

namespace spool::benchmarks {

// `cpu`: a machine of 450 GFLOP/s and 20 GB/s; or one by its text, as of spool plan --machine.
Machine machine_of(const std::string& name);

}  // namespace spool::benchmarks
