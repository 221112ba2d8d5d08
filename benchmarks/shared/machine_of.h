#pragma once

// Finds the machine that a benchmark plans for.

#include <string>

#include "spool/planner/machines/machine.h"

namespace spool::benchmarks {

// A GPU from its data sheet, or `cpu`: a machine of 450 GFLOP/s and 20 GB/s.
Machine machine_of(const std::string& name);

}  // namespace spool::benchmarks
