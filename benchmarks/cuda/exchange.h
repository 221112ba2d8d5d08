#pragma once

// The exchange of gradients between ranks with a GPU each, beside NCCL's sum (cuda/exchange.cu).

#include <string>
#include <vector>

namespace spool::benchmarks {

// Empty if this build has ranks on GPUs.
std::string why_no_gpu_ranks();

// Measures as one of the ranks of a launcher; rank 0 prints, and writes the file unless it is "".
void measure_on_gpus(const std::vector<double>& mebibytes, const std::string& json);

}  // namespace spool::benchmarks
