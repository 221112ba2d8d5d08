#pragma once

// Spool's own attention on tensor cores: bf16, head sizes that are multiples of 16 up to 128, any
// number of tokens, causal (from `first` on) or not.  Products are of bf16 numbers, summed in f32:
// weights p are rounded to bf16 for the products with v and dy, and ds for those with k and q.
// Every sum has one order, and memory is linear in T.
//
// qkv, y, dy and dqkv begin at multiples of 16 bytes.

#include "spool/kernels/cached_attention.h"

namespace spool::cuda {

constexpr int64_t max_tensor_head_size = 128;
constexpr bool is_tensor_head_size(int64_t D) { return D % 16 == 0 && D <= max_tensor_head_size; }

void tensor_attention_forward(const AttentionForward&, CudaStream&);

// The same over a cache that has the keys and values of the new tokens already.
void tensor_attention_cached(const CachedAttention&, CudaStream&);

// Workspace: tensor_backward_bytes() (kernels/tensor_attention_sizes.h).
void tensor_attention_backward(const AttentionBackward&, CudaStream&);

}  // namespace spool::cuda
