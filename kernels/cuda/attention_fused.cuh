#pragma once

// Attention by a library that fuses it: by cuDNN, from attention_cudnn.cu; in the emulator by plain
// loops, from tests/emulator.  kernels/attention_sizes.h says when, and in which parts.

#include <compare>
#include <memory>

#include "spool/kernels/attention_sizes.h"

namespace spool::cuda {

// What a call is made of: a part of the packed tensors of a whole.
struct FusedShape {
  AttentionShape part, whole;
  float scale = 1;
  auto operator<=>(const FusedShape&) const = default;

  // How far it is, in elements, from one text to the next and from one token to the next.
  int64_t packed_token() const { return (whole.H + 2 * whole.Hkv) * whole.D; }
  int64_t packed_text() const { return whole.T * packed_token(); }
  int64_t y_token() const { return whole.H * whole.D; }
  int64_t y_text() const { return whole.T * y_token(); }
  int64_t lse_text() const { return whole.H * whole.T; }  // heads lie whole.T apart
};

// Where the first head of the part's first text begins.  Values are bf16, lse is f32.
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

// The library as a stream keeps it, with a plan for every shape that it was asked for: so both it
// and the plans are made in the first step that is run, which must not be one that is recorded.
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

// The kernels, by the above.  Workspace: as fused_forward_bytes() and fused_backward_bytes() say.
void fused_forward(const AttentionForward&, CudaStream&);
void fused_backward(const AttentionBackward&, const AttentionCut&, CudaStream&);

}  // namespace spool::cuda
