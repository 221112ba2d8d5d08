#pragma once

// Samples of ops, each file's its own; op_samples.cpp puts them together.

#include <vector>

#include "spool/autograd/checks/op_sample.h"

namespace spool::testing {

void add_reductions_samples(std::vector<OpSample>& all);

}  // namespace spool::testing
