#pragma once

// Attention by kernels of our own, without tensor cores: for f32, and for bf16 where cuDNN does not
// do it (kernels/attention_sizes.h).  Products are of f32, whatever the type of the values.

#include "spool/kernels/attention.h"

namespace spool::cuda {

// What such a kernel has room for.
constexpr int64_t largest_head = 256;

void attention_forward(const AttentionForward&, CudaStream&);

void attention_backward(const AttentionBackward&, CudaStream&);

}  // namespace spool::cuda
