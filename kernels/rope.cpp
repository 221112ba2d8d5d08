#include "spool/kernels/rope.h"

#include "spool/kernels/arguments.h"

namespace spool {

void Rope::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  const auto [H, Hkv] = heads;
  const int64_t row = x.shape().row(), all_heads = H + 2 * Hkv;
  check(H > 0 && Hkv > 0 && x.shape().rank() > 1 && row % (2 * all_heads) == 0, "rope: x is ",
        x.spec(), ", and must be (B, T, ", all_heads, " heads of an even size)");
  const int64_t tokens = x.shape().rows();
  all.rows("y", y.view, gradient_of(x.dtype()), tokens, row);
  const int64_t T = x.shape()[-2];
  if (positions) all.elements("positions", positions, DType::i32, tokens);
  all.at_least_rows("table", table, accumulator(x.dtype()), positions ? 0 : first_position + T,
                    head_size());
  check(first_position >= 0 && (!positions || first_position == 0), "rope: a first position of ",
        first_position, positions ? " beside the position of each token" : "");
  all.same_or_apart("y", y.view, "x", x);
  all.apart("y", y.view, {{"table", table}, {"positions", positions}});
}

}  // namespace spool
