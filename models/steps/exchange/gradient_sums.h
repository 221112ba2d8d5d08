#pragma once

// In which order the gradients of a step's micro-batches are summed, on which their last bits
// depend, as the JSON of checkpoints has it in "gradient_sums": "micro-batches" where those of each
// are summed by themselves, as on any number of ranks in stage 2, else {"ranks": 3}, how many ranks
// accumulate several in place before; a stream that computes alone is one of them.

#include <nlohmann/json_fwd.hpp>

#include "spool/models/steps/step.h"
#include "spool/runtime/files/json.h"

namespace spool {

// How many ranks accumulate gradients in place before these are summed; 0: none.
int summed_ranks(const StepConfig&);

nlohmann::json sums_to_json(int summed_ranks);
int sums_from_json(const JsonField&);

}  // namespace spool
