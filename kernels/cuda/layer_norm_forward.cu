#include "spool/kernels/cuda/norm_forward.cuh"

namespace spool {

void run(const LayerNormForward& k, CudaStream& stream) {
  if (k.x.numel() == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    cuda::norm_forward(stream, cuda::NormForward<decltype(scalar), /*centred=*/true>(k));
  });
}

}  // namespace spool
