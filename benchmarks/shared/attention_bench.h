#pragma once

// Benchmarks of attention, forward and backward.

#include <string>

#include "kernel_bench.h"
#include "spool/kernels/attention.h"

namespace spool::benchmarks {

struct AttentionBench {
  std::string suffix = {};  // of the titles
  DType dtype = DType::f32;
  int64_t rows = 1, T = 0;
  Heads heads = {};
  int64_t D = 64;
  int64_t documents = 1;  // in each row, beyond which no token sees
};
void add_attention(Bench&, const AttentionBench&);

}  // namespace spool::benchmarks
