#pragma once

// An optimizer's state as tensors of files.

#include <vector>

#include "spool/models/formats/named_parameters.h"
#include "spool/models/optimizers/optimizer.h"

namespace spool {

// One row of the state as a tensor per parameter of a model; absent for parameters that are not the
// optimizer's.
std::vector<TensorContents> state_row(Optimizer&, size_t row, const Parameters&);

// One tensor per parameter: its master, or the parameter itself if it has none.
std::vector<TensorContents> exact_parameters(Optimizer&, const Parameters&);

// Whether there are masters.
bool has_masters(const Optimizer&);

}  // namespace spool
