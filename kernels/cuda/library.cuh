#pragma once

// What the libraries that a stream keeps (CudaStream::library) have in common: they take memory of
// the device and wait for it when they are made, which no graph can hold.  So work is done once
// before it is recorded.

#include "spool/runtime/cuda/stream.h"

namespace spool::cuda {

// Throws a sentence if the stream is recording, and what is about to be made cannot be.
void check_not_recording(const CudaStream&, const char* what);

}  // namespace spool::cuda
