#pragma once

// Groups of the samples of op_samples.h.

#include <vector>

#include "spool/autograd/checks/op_sample.h"

namespace spool::testing {

void add_attention_samples(std::vector<OpSample>& all);
void add_matmul_samples(std::vector<OpSample>& all);

}  // namespace spool::testing
