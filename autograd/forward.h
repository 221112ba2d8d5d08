#pragma once

// Forward gives an op's forward() its inputs, its outputs and memory.

#include <array>
#include <cstdint>

#include "spool/autograd/engine/few.h"
#include "spool/autograd/op_context.h"
#include "spool/kernels/launch.h"

namespace spool {

class GradientCheck;  // gradient_check.h
struct Node;          // program.h

class Forward {
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

  // Number of chunks the plan cuts the work into.
  int chunks() const;
  // The op's position on the tape; the same when it is recomputed.
  NodeId node() const;
  // Index of the first element of an input or an output in the whole, of which this tape, or this
  // chunk, has some rows.
  int64_t first_element(const View&) const;
  // The state of the random numbers, i32 (4); see kernels/dropout.h.  Throws if the tape has none.
  View random() const;
  // What a mean loss is multiplied by, f32 (1); absent: 1 / the valid targets of this tape.
  View loss_scale() const;
  // Memory for the gradient of an input, for an op that computes it in forward, on a tape with
  // TapeOptions::backward_follows.  The op must write it at once.
  Grad grad_input(int i);

  Stream& stream() const { return context_.stream; }
  Tensor scratch(const Spec& spec);
  template <class Kernel>
  void launch(const Kernel& k) {
    spool::launch(k, stream());
  }

 private:
  template <size_t N>
  static std::array<View, N> first(const Few<Tensor>& all) {
    std::array<View, N> some;
    for (size_t i = 0; i < std::min(N, all.size()); ++i) some[i] = all[i];
    return some;
  }
  void check_outputs(size_t asked_for) const;

  const OpContext& context_;
  const Node& node_;
  NodeId id_;
  const Few<Tensor>& inputs_;
  const Few<Tensor>& outputs_;
  GradientCheck* check_;
};

}  // namespace spool
