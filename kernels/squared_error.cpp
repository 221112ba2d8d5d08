#include "spool/kernels/squared_error.h"

#include "spool/kernels/arguments.h"

namespace spool {

void SquaredErrorForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows();
  all.rows("y", y, x.dtype(), N, x.shape().row());
  all.elements("losses", losses, accumulator(x.dtype()), N);
  all.apart("losses", losses, {{"x", x}, {"y", y}});
}

void SquaredErrorBackward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t N = x.shape().rows(), C = x.shape().row();
  const DType sums = accumulator(x.dtype());
  all.rows("y", y, x.dtype(), N, C);
  all.present("upstream", upstream, sums);
  if (upstream.numel() != 1) all.elements("upstream", upstream, sums, N);
  if (scale) all.elements("scale", scale, sums, 1);
  if (dx) all.rows("dx", dx.view, gradient_of(x.dtype()), N, C);
  if (dy) all.rows("dy", dy.view, gradient_of(x.dtype()), N, C);
  all.apart("dx", dx.view, {{"x", x}, {"y", y}, {"upstream", upstream}, {"scale", scale}});
  all.apart("dy", dy.view, {{"x", x}, {"y", y}, {"upstream", upstream}, {"scale", scale}});
}

}  // namespace spool
