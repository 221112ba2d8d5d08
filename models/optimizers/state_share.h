// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The share of the optimizer's state that stays on the device while the rest is streamed: whole
// parameters, the largest first, each if it still fits, and of the smallest other one the first
// elements, in multiples of AdamW::granule.  So at most one parameter is divided, and of what may
// be on the device less than a granule of each row stays unused, or less than one parameter.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spool/autograd/parameter.h"
#include "spool/models/optimizers/optimizer.h"

namespace spool {

// Of each parameter, the number of its first elements whose state is on the device, where it takes
// at most `bytes`.  `rows`, at least one: of AdamW m, v, and the masters where there are any, each
// f32.
std::vector<int64_t> elements_on_device(const std::vector<int64_t>& numels, size_t rows,
                                        size_t bytes);

std::vector<int64_t> numels_of(const std::vector<Parameter*>&);

// Where that many rows are: on the device if there are none, or if they are streamed and their
// share is all.
OptimizerState place_of_rows(const std::vector<Parameter*>&, size_t rows, const OptimizerMemory&);

}  // namespace spool
