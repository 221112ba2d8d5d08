#pragma once

// The machine that a benchmark plans for.

#include <string>

#include "spool/planner/machine.h"

namespace spool::benchmarks {

// A GPU by its data sheet, or `cpu`: one of 450 GFLOP/s and 20 GB/s.
Machine machine_of(const std::string& name);

}  // namespace spool::benchmarks
