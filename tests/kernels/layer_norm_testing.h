#pragma once

// Tensors of a forward and a backward pass of layer normalisation.

#include "spool/kernels/layer_norm.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct LayerNormInputs {
  Tensor x, weight, bias, dy;
};

// The results of forward, in tensors that hold NaN until they are written.
struct LayerNormOutputs {
  Tensor y, mean, rstd;

  LayerNormOutputs(const LayerNormInputs& in, Stream& stream)
      : y(unset(in.x.shape(), in.x.dtype(), stream)),
        mean(unset({in.x.shape()[0]}, accumulator(in.x.dtype()), stream)),
        rstd(unset({in.x.shape()[0]}, accumulator(in.x.dtype()), stream)) {
    launch(
        LayerNormForward{
            .y = y, .mean = mean, .rstd = rstd, .x = in.x, .weight = in.weight, .bias = in.bias},
        stream);
  }
};

// Backward without gradients, which the caller sets.
inline LayerNormBackward layer_norm_backward(const LayerNormInputs& in,
                                             const LayerNormOutputs& out) {
  return {.dx = {},
          .dweight = {},
          .dbias = {},
          .dy = in.dy,
          .x = in.x,
          .weight = in.weight,
          .mean = out.mean,
          .rstd = out.rstd};
}

}  // namespace spool::testing
