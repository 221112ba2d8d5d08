#include "spool/kernels/clip_factor.h"

#include <limits>

#include "spool/kernels/cuda/device.cuh"

namespace spool {
namespace cuda {
namespace {

constexpr double infinite_norm = std::numeric_limits<double>::infinity();

__global__ void clip_factor_kernel(float* clip, const double* squared, float limit) {
  const double norm = sqrt(*squared);
  clip[0] = limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  clip[1] = static_cast<float>(norm);
  clip[2] = norm < infinite_norm ? 1.0f : 0.0f;
}

}  // namespace
}  // namespace cuda

void run(const ClipFactor& k, CudaStream& stream) {
  cuda::launch_kernel(stream, cuda::clip_factor_kernel, {.grid = dim3(1), .block = dim3(1)},
                      k.clip.as<float>(), k.squared.as<double>(), k.limit);
}

}  // namespace spool
