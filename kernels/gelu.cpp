#include "spool/kernels/gelu.h"

#include "spool/kernels/arguments.h"

namespace spool {

void GeluForward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.elements("y", y, x.dtype(), x.numel());
  all.same_or_apart("y", y, "x", x);
}

void GeluBackward::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const int64_t n = x.numel();
  all.elements("dy", dy, x.dtype(), n);
  all.elements("dx", dx.view, gradient_of(x.dtype()), n);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.same_or_apart("dx", dx.view, "x", x);
}

}  // namespace spool
