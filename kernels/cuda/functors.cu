#include "spool/kernels/functors.h"

#include "spool/kernels/cuda/functor_map.cuh"

namespace spool {

template <map_details::OfLibrary F, int n>
void run(const MapForward<F, n>& k, CudaStream& stream) {
  cuda::run_map(k, stream);
}
template <map_details::OfLibrary F, int n>
void run(const MapBackward<F, n>& k, CudaStream& stream) {
  cuda::run_map(k, stream);
}

#define SPOOL_COMPILE(F, n)                                          \
  template void run(const MapForward<functors::F, n>&, CudaStream&); \
  template void run(const MapBackward<functors::F, n>&, CudaStream&);
SPOOL_EACH_FUNCTOR(SPOOL_COMPILE)

}  // namespace spool
