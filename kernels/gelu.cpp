#include "spool/kernels/gelu.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/row_groups.h"

namespace spool {

void GeluForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.elements("y", y, x.dtype(), x.numel());
  all.same_or_apart("y", y, "x", x);
  if (bias) {
    all.elements("bias", bias, x.dtype(), x.shape().row());
    all.apart("y", y, {{"bias", bias}});
  }
}

void GeluBackward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t n = x.numel();
  all.elements("dy", dy, x.dtype(), n);
  if (dx || !bias) all.elements("dx", dx.view, gradient_of(x.dtype()), n);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.same_or_apart("dx", dx.view, "x", x);
  if (!bias && !dbias) return;
  const int64_t C = x.shape().row();
  all.elements("bias", bias, x.dtype(), C);
  all.apart("dx", dx.view, {{"bias", bias}, {"dbias", dbias.view}});
  if (!dbias) return;
  all.elements("dbias", dbias.view, gradient_of(x.dtype()), C);
  all.apart("dbias", dbias.view, {{"dy", dy}, {"x", x}, {"bias", bias}});
}

size_t GeluBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dbias) return 0;
  const int64_t C = x.shape().row();
  return static_cast<size_t>(cuda::RowGroups(x.shape().rows(), C).count * C) * sizeof(float);
}

}  // namespace spool
