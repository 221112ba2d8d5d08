#pragma once

// Forward gives an op's forward() its inputs, its outputs and memory.

#include <array>

#include "spool/autograd/engine/few.h"
#include "spool/autograd/op_context.h"

namespace spool {

class Forward : public OpRun {
 public:
  // `check`, if given, checks the gradients' memory that is handed out.
  Forward(const OpContext& context, NodeId id, const Few<Tensor>& inputs,
          const Few<Tensor>& outputs, GradientCheck* check = nullptr);

  // The first N inputs or outputs of at least N; optional inputs that the op was not given are
  // absent.
  template <size_t N>
  std::array<View, N> inputs() const {
    return first<N>(inputs_);
  }
  template <size_t N>
  std::array<View, N> outputs() const {
    check_outputs(N);
    return first<N>(outputs_);
  }

  // Memory for the gradient of an input, for an op that computes it in forward, on a tape with
  // TapeOptions::backward_follows.  The op must write it at once.
  Grad grad_input(int i);

 private:
  template <size_t N>
  static std::array<View, N> first(const Few<Tensor>& all) {
    std::array<View, N> some;
    for (size_t i = 0; i < std::min(N, all.size()); ++i) some[i] = all[i];
    return some;
  }
  void check_outputs(size_t asked_for) const;

  const Few<Tensor>& inputs_;
  const Few<Tensor>& outputs_;
};

}  // namespace spool
