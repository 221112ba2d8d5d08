#pragma once

#include <string>

#include "shared/kernel_bench.h"

namespace spool::benchmarks {

// Benchmarks of the kernels of a step of Llama 3.2 1B and of Qwen3 0.6B, at their shapes, for a
// batch of one text of 2048 tokens, or of as many as the benchmark has.
void add_llama_kernels(Bench&, DType, const std::string& suffix);

}  // namespace spool::benchmarks
