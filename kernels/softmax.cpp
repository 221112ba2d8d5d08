#include "spool/kernels/softmax.h"

#include "spool/kernels/arguments.h"

namespace spool {

void SoftmaxForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.rows("y", y, x.dtype(), x.shape().rows(), x.shape().row());
  all.same_or_apart("y", y, "x", x);
}

void SoftmaxBackward::check_arguments() const {
  const Arguments all(name);
  all.present("y", y, floating);
  const int64_t N = y.shape().rows(), C = y.shape().row();
  all.rows("dy", dy, y.dtype(), N, C);
  all.rows("dx", dx.view, gradient_of(y.dtype()), N, C);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.apart("dx", dx.view, {{"y", y}});
}

}  // namespace spool
