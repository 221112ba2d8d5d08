#include "spool/kernels/cuda/norm_backward.cuh"
#include "spool/kernels/cuda/norm_forward.cuh"

namespace spool {

void run(const RmsNormForward& k, CudaStream& stream) {
  if (k.x.numel() == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    cuda::norm_forward(stream, cuda::NormForward<decltype(scalar), /*centred=*/false>(k));
  });
}

void run(const RmsNormBackward& k, CudaStream& stream) {
  if (!k.dx && !k.dweight) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    const cuda::NormBackward<decltype(scalar), /*centred=*/false> all(k);
    cuda::norm_backward(stream, all, k.dweight, /*dbias=*/{}, k.workspace.as<float>());
  });
}

}  // namespace spool
