#include "spool/kernels/cuda/library.cuh"

#include <cuda_runtime.h>

#include "spool/runtime/check.h"

namespace spool::cuda {

void check_not_recording(const CudaStream& stream, const char* what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status);
  check(status == cudaStreamCaptureStatusNone, "cuda: ", what,
        " cannot be made ready while a graph is recorded; do the work once before");
}

}  // namespace spool::cuda
