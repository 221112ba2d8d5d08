#include "spool/kernels/dropout.h"

#include "spool/kernels/arguments.h"

namespace spool {

void Dropout::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.elements("y", y.view, gradient_of(x.dtype()), x.numel());
  all.elements("random", random, DType::i32, 4);
  all.same_or_apart("y", y.view, "x", x);
  all.apart("y", y.view, {{"random", random}});
  check(p >= 0 && p < 1, "dropout: p = ", p, " is not in [0, 1)");
  check(first >= 0, "dropout: the first element has index ", first, "; it must be 0 or more");
}

}  // namespace spool
