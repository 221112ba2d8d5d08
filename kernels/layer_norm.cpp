#include "spool/kernels/layer_norm.h"

#include <algorithm>

#include "spool/kernels/arguments.h"
#include "spool/kernels/layer_norm_sizes.h"
#include "spool/kernels/row_groups.h"

namespace spool {

void LayerNormForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const DType type = x.dtype(), sums = accumulator(type);
  all.rows("y", y, type, N, C);
  all.elements("mean", mean, sums, N);
  all.elements("rstd", rstd, sums, N);
  all.elements("weight", weight, type, C);
  if (bias) all.elements("bias", bias, type, C);
  all.apart("y", y, {{"x", x}, {"weight", weight}, {"bias", bias}});
  all.apart("mean", mean, {{"y", y}, {"rstd", rstd}, {"x", x}, {"weight", weight}, {"bias", bias}});
  all.apart("rstd", rstd, {{"y", y}, {"x", x}, {"weight", weight}, {"bias", bias}});
}

void LayerNormBackward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const DType type = x.dtype(), sums = accumulator(type);
  all.rows("dy", dy, type, N, C);
  all.elements("weight", weight, type, C);
  all.elements("mean", mean, sums, N);
  all.elements("rstd", rstd, sums, N);
  if (dx) all.rows("dx", dx.view, type, N, C);
  if (dweight) all.elements("dweight", dweight.view, gradient_of(type), C);
  if (dbias) all.elements("dbias", dbias.view, gradient_of(type), C);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.apart("dx", dx.view, {{"x", x}, {"weight", weight}, {"mean", mean}, {"rstd", rstd}});
  all.apart("dweight", dweight.view, {{"dx", dx.view}, {"dy", dy}, {"x", x}, {"weight", weight}});
  all.apart("dbias", dbias.view, {{"dx", dx.view}, {"dy", dy}, {"x", x}, {"weight", weight}});
}

// Room for the partial sums of all groups: of both gradients or, if a row does not fit a block, of
// one at a time.
size_t LayerNormBackward::workspace_bytes(const CudaArchitecture&) const {
  const int64_t N = x.shape().rows(), C = x.shape().row();
  if (partial_sums() == 0) return 0;
  const int64_t groups = std::max(cuda::LayerNormGroups(N, C, x.dtype()).count * partial_sums(),
                                  cuda::RowGroups(N, C).count);
  return static_cast<size_t>(groups * C) * sizeof(float);
}

}  // namespace spool
