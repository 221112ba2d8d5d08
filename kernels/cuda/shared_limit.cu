#include <map>
#include <mutex>
#include <utility>

#include "spool/kernels/cuda/device.cuh"
#include "spool/runtime/cuda/handles.cuh"

namespace spool::cuda {
namespace {

// Raises the limit of the kernel to what the device has beside the kernel's static shared memory.
size_t raise_limit(int device, const void* kernel) {
  int max = 0;
  check_call(cudaDeviceGetAttribute(&max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  cudaFuncAttributes attributes{};
  check_call(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const int limit = max - static_cast<int>(attributes.sharedSizeBytes);
  check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit),
             "cudaFuncSetAttribute, to let a kernel have ", limit,
             " bytes of dynamic shared memory");
  return static_cast<size_t>(limit);
}

}  // namespace

void allow_shared(const CudaStream& stream, const void* kernel, size_t bytes) {
  static std::mutex busy;
  static std::map<std::pair<int, const void*>, size_t> limits;
  const int device = stream.device().index;
  const std::lock_guard one_at_a_time(busy);
  auto known = limits.find({device, kernel});
  if (known == limits.end()) {
    known = limits.emplace(std::pair(device, kernel), raise_limit(device, kernel)).first;
  }
  if (bytes > known->second) {
    fail(ErrorKind::device, "cuda:", device, ": a kernel needs ", bytes,
         " bytes of dynamic shared memory, and a block of it can have ", known->second, " there");
  }
}

}  // namespace spool::cuda
