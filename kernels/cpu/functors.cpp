#include "spool/kernels/functors.h"

namespace spool {

template <map_details::OfLibrary F, int n>
void run(const MapForward<F, n>& k, CpuStream& stream) {
  map_details::run_on_cpu(k, stream);
}
template <map_details::OfLibrary F, int n>
void run(const MapBackward<F, n>& k, CpuStream& stream) {
  map_details::run_on_cpu(k, stream, std::make_index_sequence<n>());
}

#define SPOOL_COMPILE(F, n)                                         \
  template void run(const MapForward<functors::F, n>&, CpuStream&); \
  template void run(const MapBackward<functors::F, n>&, CpuStream&);
SPOOL_EACH_FUNCTOR(SPOOL_COMPILE)

}  // namespace spool
