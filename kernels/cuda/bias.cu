#include "spool/kernels/bias.h"

#include "spool/kernels/cuda/column_sums.cuh"

namespace spool {

void run(const BiasBackward& k, CudaStream& stream) {
  const int64_t N = k.dy.shape().rows(), C = k.dy.shape().row();
  cuda::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const cuda::EachValue<T> each{.x = k.dy.as<T>(), .C = C};
    cuda::sum_columns<T>(stream, each, N, k.dbias, k.workspace.as<float>(),
                         /*wide=*/cuda::packs<T>(each.x, C));
  });
}

}  // namespace spool
