#include "spool/kernels/matmul_algorithms.h"

#include "spool/runtime/cuda/stream.h"

namespace spool {
namespace {

// The stream as a CudaStream; null if it is of another device.
[[maybe_unused]] CudaStream* on_cuda(Stream& stream) {
  return stream.device().type == DeviceType::cuda ? static_cast<CudaStream*>(&stream) : nullptr;
}

}  // namespace

#if SPOOL_CUDA
MatmulAlgorithms matmul_algorithms(Stream& stream) {
  CudaStream* const cuda = on_cuda(stream);
  return cuda ? matmul_algorithms(*cuda) : MatmulAlgorithms{};
}
void use_matmul_algorithms(Stream& stream, const MatmulAlgorithms& table) {
  if (CudaStream* const cuda = on_cuda(stream)) use_matmul_algorithms(*cuda, table);
}
void time_matmul_algorithms(Stream& stream) {
  if (CudaStream* const cuda = on_cuda(stream)) time_matmul_algorithms(*cuda);
}
#else
MatmulAlgorithms matmul_algorithms(Stream&) { return {}; }
void use_matmul_algorithms(Stream&, const MatmulAlgorithms&) {}
void time_matmul_algorithms(Stream&) {}
#endif

}  // namespace spool
