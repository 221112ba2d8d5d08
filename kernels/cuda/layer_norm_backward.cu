#include "spool/kernels/cuda/norm_backward.cuh"

namespace spool {

void run(const LayerNormBackward& k, CudaStream& stream) {
  check(!k.dx || k.dx.view.dtype() == k.x.dtype(),
        "layer_norm on cuda: dx must have the type of x");
  if (!k.dx && !k.dweight && !k.dbias) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    const cuda::NormBackward<decltype(scalar), /*centred=*/true> all(k);
    cuda::norm_backward(stream, all, k.dweight, k.dbias, k.workspace.as<float>());
  });
}

}  // namespace spool
