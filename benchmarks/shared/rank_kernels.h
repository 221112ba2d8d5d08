#pragma once

#include "shared/kernel_bench.h"

namespace spool::benchmarks {

// Benchmarks of what ranks that train together launch besides a step's kernels: sums of a bucket of
// 4 Mi elements, hashes of as many, and the loss of a vocabulary in parts.
void add_rank_kernels(Bench&);

}  // namespace spool::benchmarks
