#pragma once

// The setup of a stream's libraries (CudaStream::library), cuBLASLt and cuDNN: it allocates device
// memory and synchronises, which cannot be captured in a graph, so work runs once before it is
// captured.

#include <cuda_runtime.h>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/stream.h"

namespace spool::cuda {

// Throws if the stream is being captured, so that `what` cannot be set up now.
inline void check_not_capturing(const CudaStream& stream, const char* what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status);
  check(status == cudaStreamCaptureStatusNone, "cuda: ", what,
        " cannot be set up while a graph is captured; run the same work once before capturing it");
}

}  // namespace spool::cuda
