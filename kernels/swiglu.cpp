#include "spool/kernels/swiglu.h"

#include "spool/kernels/arguments.h"

namespace spool {

void SwigluForward::check_arguments() const {
  const Arguments all(name);
  all.present("y", y, floating);
  all.rows("x", x, y.dtype(), y.shape().rows(), 2 * y.shape().row());
  all.apart("y", y, {{"x", x}});
}

void SwigluBackward::check_arguments() const {
  const Arguments all(name);
  all.present("dy", dy, floating);
  const int64_t N = dy.shape().rows(), I = dy.shape().row();
  all.rows("x", x, dy.dtype(), N, 2 * I);
  all.rows("dx", dx.view, gradient_of(dy.dtype()), N, 2 * I);
  all.same_or_apart("dx", dx.view, "x", x);
  all.apart("dx", dx.view, {{"dy", dy}});
}

}  // namespace spool
