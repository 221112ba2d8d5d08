#pragma once

// Spool's own attention kernels, without tensor cores: for f32, and for bf16 where neither cuDNN
// nor the kernels on tensor cores are used (kernels/attention_sizes.h).  Products are computed in
// f32, whatever the type of the values.

#include "spool/kernels/attention.h"

namespace spool::cuda {

// Largest head size.
constexpr int64_t max_head_size = 256;

void attention_forward(const AttentionForward&, CudaStream&);

void attention_backward(const AttentionBackward&, CudaStream&);

// Writes delta, f32 (B, H, T), to the workspace: the first part of attention_backward().
void attention_delta(const AttentionBackward&, CudaStream&);

}  // namespace spool::cuda
