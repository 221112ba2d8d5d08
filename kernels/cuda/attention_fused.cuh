#pragma once

// Attention by a library that fuses it: cuDNN (attention_cudnn.cu), or plain loops in the emulator
// (tests/emulator).  kernels/attention_sizes.h decides when it is used, and in which parts.

#include <compare>
#include <memory>

#include "spool/kernels/attention_sizes.h"

namespace spool::cuda {

// The extents of a call, which computes a part of packed tensors.
struct FusedShape {
  AttentionShape part, whole;
  float scale = 1;
  Mask mask = Mask::causal;
  SumOrder order = SumOrder::fixed;  // of backward
  auto operator<=>(const FusedShape&) const = default;

  // Strides from one text to the next and from one token to the next, in elements.
  int64_t packed_token() const { return (whole.H + 2 * whole.Hkv) * whole.D; }
  int64_t packed_text() const { return whole.T * packed_token(); }
  int64_t y_token() const { return whole.H * whole.D; }
  int64_t y_text() const { return whole.T * y_token(); }
  int64_t lse_text() const { return whole.H * whole.T; }  // the stride of heads is whole.T
};

// Pointers to the first head of the part's first text.  Values are bf16, lse is f32.  The workspace
// is that of the part, by kernels/attention_sizes.h, or larger.
struct FusedForward {
  FusedShape shape;
  const void *q, *k, *v;
  void *y, *lse;
  View workspace;
};
struct FusedBackward {
  FusedShape shape;
  const void *q, *k, *v, *y, *dy, *lse;
  void *dq, *dk, *dv;
  View workspace;
};

// A stream's instance of the library, and the plans for every shape in use, which the process's
// streams of a device share.  They are created in the first step that runs, which must not be
// captured in a graph.
class FusedAttention {
 public:
  explicit FusedAttention(CudaStream&);
  ~FusedAttention();

  void forward(const FusedForward&);
  void backward(const FusedBackward&);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// FusedAttention runs the kernels.  Workspace: fused_forward_bytes() and fused_backward_bytes().
void fused_forward(const AttentionForward&, CudaStream&);
void fused_backward(const AttentionBackward&, const AttentionCut&, CudaStream&);

}  // namespace spool::cuda
