#pragma once

// What a program counts of the emulated device's work.

#include "runtime_api.h"

namespace emulator {

// Kernels, copies and graphs that were enqueued on a stream so far, each as one.
uint64_t enqueued(cudaStream_t);

}  // namespace emulator
