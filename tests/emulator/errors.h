#pragma once

// The last error of each thread, and what cudaGetErrorString says.

#include <string>

#include "runtime_api.h"

namespace emulator {

// Keeps an error for cudaGetLastError, and returns it.
cudaError_t failed(cudaError_t);

// The same for a kernel that failed with this sentence.
cudaError_t failed_kernel(const std::string& sentence);

}  // namespace emulator
