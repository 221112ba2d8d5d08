#pragma once

// The bytes of parameters and optimizer state, to be compared.

#include <cstddef>
#include <vector>

#include "spool/models/optimizers/adamw.h"

namespace spool::testing {

using Bytes = std::vector<std::byte>;

constexpr OptimizerState optimizer_states[] = {OptimizerState::device, OptimizerState::streamed,
                                               OptimizerState::cpu};

// The bytes of the parameters, then of first moments, second moments and masters.
Bytes state_bytes(const std::vector<Parameter*>&, const AdamWOptimizer&);

}  // namespace spool::testing
