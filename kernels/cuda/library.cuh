#pragma once

// Common to the libraries that a stream keeps (CudaStream::library), cuBLASLt and cuDNN: while they
// are set up they allocate device memory and synchronise, which cannot be captured in a graph.  So
// work runs once before it is captured.

#include <cuda_runtime.h>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/stream.h"

namespace spool::cuda {

// Throws if the stream is being captured; `what` is about to be set up, and cannot be then.
inline void check_not_capturing(const CudaStream& stream, const char* what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status);
  check(status == cudaStreamCaptureStatusNone, "cuda: ", what,
        " cannot be set up while a graph is captured; run the same work once before capturing it");
}

}  // namespace spool::cuda
