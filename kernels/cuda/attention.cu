#include "spool/kernels/cuda/attention.cuh"

#include "spool/kernels/cuda/attention_fused.cuh"

namespace spool {
namespace {

const CudaArchitecture& architecture(const CudaStream& stream) {
  return std::get<CudaArchitecture>(stream.architecture());
}

}  // namespace

void run(const AttentionForward& k, CudaStream& stream) {
  if (cuda::is_fused(k, architecture(stream))) return cuda::fused_forward(k, stream);
  cuda::attention_forward(k, stream);
}

void run(const AttentionBackward& k, CudaStream& stream) {
  if (!cuda::is_fused(k, architecture(stream))) return cuda::attention_backward(k, stream);
  const cuda::AttentionShape all = cuda::attention_shape(k.qkv, k.y, k.heads);
  cuda::fused_backward(k, cuda::cut_backward(all), stream);
}

}  // namespace spool
