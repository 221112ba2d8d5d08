#pragma once

// Tensors of a forward and a backward pass of the norm of heads.

#include "spool/kernels/head_norm.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct HeadNormRun {
  Heads heads;
  int64_t N, D;
  Tensor x, query, key, dy, y, r;

  HeadNormRun(int64_t tokens, const Heads& of, int64_t head, DType t, Stream& stream)
      : heads(of),
        N(tokens),
        D(head),
        x(normal({N, row()}, t, stream, 1, 2)),
        query(normal({D}, t, stream, 2)),
        key(normal({D}, t, stream, 3)),
        dy(normal({N, row()}, t, stream, 4)),
        y(unset({N, row()}, t, stream)),
        r(unset({N, heads.query + heads.key}, accumulator(t), stream)) {
    launch(HeadNormForward{.y = y, .r = r, .x = x, .query = query, .key = key, .heads = heads},
           stream);
  }
  int64_t row() const { return (heads.query + 2 * heads.key) * D; }
  HeadNormBackward backward(const Grad& dx, const Grad& dquery, const Grad& dkey) const {
    return {.dx = dx,
            .dquery = dquery,
            .dkey = dkey,
            .dy = dy,
            .x = x,
            .query = query,
            .key = key,
            .r = r,
            .heads = heads};
  }
};

}  // namespace spool::testing
