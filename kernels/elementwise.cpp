#include "spool/kernels/elementwise.h"

#include "spool/kernels/arguments.h"

namespace spool {

void Fill::check_arguments() const { Arguments(name).present("out", out, floating); }

void Add::check_arguments() const {
  const Arguments all(name);
  all.present("a", a, floating);
  const int64_t n = a.numel();
  all.elements("out", out.view, gradient_of(a.dtype()), n);
  all.same_or_apart("out", out.view, "a", a);
  if (!b) return;
  all.elements("b", b, a.dtype(), n);
  all.same_or_apart("out", out.view, "b", b);
}

void Scale::check_arguments() const {
  const Arguments all(name);
  all.present("a", a, floating);
  all.elements("out", out.view, a.dtype(), a.numel());
  all.same_or_apart("out", out.view, "a", a);
  if (!by) return;
  all.elements("by", by, accumulator(a.dtype()), 1);
  all.apart("out", out.view, {{"by", by}});
}

void Cast::check_arguments() const {
  const Arguments all(name);
  all.present("in", in, convertible);
  all.elements("out", out, convertible, in.numel());
  all.same_or_apart("out", out, "in", in);
}

}  // namespace spool
