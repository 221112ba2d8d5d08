#include "spool/kernels/bias.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/row_groups.h"

namespace spool {

void BiasBackward::check_arguments() const {
  const Arguments all(name);
  all.present("dy", dy, floating);
  all.elements("dbias", dbias.view, gradient_of(dy.dtype()), dy.shape().row());
  all.apart("dbias", dbias.view, {{"dy", dy}});
}

size_t BiasBackward::workspace_bytes(const CudaArchitecture&) const {
  const int64_t N = dy.shape().rows(), C = dy.shape().row();
  return static_cast<size_t>(cuda::RowGroups(N, C).count * C) * sizeof(float);
}

}  // namespace spool
