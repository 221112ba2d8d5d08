#pragma once

// The samples of op_samples.h, by what the ops do.

#include <vector>

#include "spool/autograd/checks/op_sample.h"

namespace spool::testing {

void add_attention_samples(std::vector<OpSample>& all);
void add_llama_samples(std::vector<OpSample>& all);
void add_map_samples(std::vector<OpSample>& all);
void add_matmul_samples(std::vector<OpSample>& all);
void add_view_samples(std::vector<OpSample>& all);
void add_reductions_samples(std::vector<OpSample>& all);

}  // namespace spool::testing
