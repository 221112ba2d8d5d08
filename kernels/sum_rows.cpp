#include "spool/kernels/sum_rows.h"

#include "spool/kernels/arguments.h"

namespace spool {

void SumRows::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.present("y", y.view, gradient_of(x.dtype()));
  const int64_t N = y.view.numel();
  check(C >= 0 && x.numel() == N * C, name, ": x ", x.spec(), " and y ", y.view.spec(),
        " do not fit: each element of y is the sum of ", C);
  all.apart("y", y.view, {{"x", x}});
}

void Spread::check_arguments() const {
  const Arguments all(name);
  all.present("dx", dx.view, floating);
  const DType type = dx.view.dtype();
  all.present("dy", dy, type == DType::f32 ? gradient_of(type) | DType::bf16 : gradient_of(type));
  const int64_t N = dy.numel();
  check(N > 0 ? dx.view.numel() % N == 0 : dx.view.numel() == 0, name, ": the elements of dx ",
        dx.view.spec(), " must be a multiple of those of dy ", dy.spec());
  all.apart("dx", dx.view, {{"dy", dy}});
}

}  // namespace spool
