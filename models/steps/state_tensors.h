#pragma once

// An optimizer's state as tensors of files.

#include <vector>

#include "spool/models/formats/named_parameters.h"
#include "spool/models/optimizers/optimizer.h"

namespace spool {

// A row of the state, parallel to all parameters of a model; absent for those that are not the
// optimizer's.
std::vector<TensorContents> state_row(Optimizer&, size_t row, const Parameters&);

// Parallel to the parameters: their masters, and themselves where there are none.
std::vector<TensorContents> exact_parameters(Optimizer&, const Parameters&);

// Whether there are masters.
bool has_masters(const Optimizer&);

}  // namespace spool
