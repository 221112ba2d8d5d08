#pragma once

// From which size on the work of a micro-batch hides the copies of what lives on the host
// (autograd/homes.h), for reports.

#include <vector>

#include "spool/runtime/trace.h"

namespace spool {

// By what factor micro-batches would have to be larger for the kernels of each forward, and of each
// backward, to take as long as its copies of parameters, gradients and state in either direction.
// In each, kernels and the copies of values grow with the rows, and updates and those copies do
// not:
//
//   factor = (copies of homes - updates) / (kernels - copies of values)    seconds
//
// 0 if nothing is copied; infinite if values alone are copied for longer than kernels run.
double growth_that_hides_homes(const std::vector<TraceSpan>& step);

}  // namespace spool
