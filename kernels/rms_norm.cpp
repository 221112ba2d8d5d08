#include "spool/kernels/rms_norm.h"

#include <algorithm>

#include "spool/kernels/arguments.h"
#include "spool/kernels/layer_norm_sizes.h"
#include "spool/kernels/row_groups.h"

namespace spool {

void RmsNormForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows(), C = x.shape().row();
  all.rows("y", y, x.dtype(), N, C);
  all.elements("r", r, accumulator(x.dtype()), N);
  all.elements("weight", weight, x.dtype(), C);
  all.apart("y", y, {{"x", x}, {"weight", weight}});
  all.apart("r", r, {{"y", y}, {"x", x}, {"weight", weight}});
}

void RmsNormBackward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const DType type = x.dtype();
  all.rows("dy", dy, type, N, C);
  all.elements("weight", weight, type, C);
  all.elements("r", r, accumulator(type), N);
  if (dx) all.rows("dx", dx.view, type, N, C);
  if (dweight) all.elements("dweight", dweight.view, gradient_of(type), C);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.apart("dx", dx.view, {{"x", x}, {"weight", weight}, {"r", r}});
  all.apart("dweight", dweight.view,
            {{"dx", dx.view}, {"dy", dy}, {"x", x}, {"weight", weight}, {"r", r}});
}

size_t RmsNormBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dweight) return 0;
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const int64_t groups =
      std::max(cuda::LayerNormGroups(N, C, x.dtype()).count, cuda::RowGroups(N, C).count);
  return static_cast<size_t>(groups * C) * sizeof(float);
}

}  // namespace spool
