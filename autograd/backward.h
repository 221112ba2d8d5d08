#pragma once

// Backward gives an op's backward() what it reads and where it writes gradients.

#include <array>

#include "spool/autograd/op_context.h"

namespace spool {

class Regions;  // engine/regions.h

// A gradient that an op asks for must be written; one that is not needed is absent.
class Backward : public OpRun {
 public:
  Backward(const OpContext& context, Regions& regions, NodeId id, GradientCheck* check = nullptr);

  // The first N of the tensors that saves() named, in its order.
  template <size_t N>
  std::array<View, N> saved() {
    return each<N>([this](int i) { return saved_at(i); });
  }
  // Gradients of the outputs; absent for an output on which no root depends.
  template <size_t N>
  std::array<View, N> grad_outputs() {
    return each<N>([this](int i) { return grad_output(i); });
  }
  template <size_t N>
  std::array<Grad, N> grad_inputs() {
    return each<N>([this](int i) { return grad_input(i); });
  }

  bool needs_grad(int input) const;
  View saved_at(int i);
  View grad_output(int i) const;
  Grad grad_input(int i);
  // As grad_input(), but may share the memory of that output's gradient, if nothing else reads it:
  // for kernels that read element i before they write it.  Ask for it before other gradients.
  Grad grad_input_over(int input, int output);

  // Passes the output's gradient on as the input's, in the input's shape.  Shares memory if
  // possible; shared memory is copied before it is written to.
  void pass(int input, int output = 0);
  // The same with some consecutive elements of the output's gradient.
  void pass_part(int input, int output, Range elements);
  // Makes that saved tensor the gradient of the input.
  void pass_saved(int input, int saved);
  // Whether the output's gradient is known to be 1: it is a root of backward() without a gradient
  // of its own, or was passed the gradient of such a root.
  bool grad_output_is_one(int output) const;

 private:
  template <size_t N, class F>
  static auto each(F f) {
    std::array<decltype(f(0)), N> all;
    for (size_t i = 0; i < N; ++i) all[i] = f(static_cast<int>(i));
    return all;
  }
  const Tensor& saved_tensor(int i);
  void receive(int input, const Tensor& gradient, bool is_one = false);

  Regions& regions_;
};

}  // namespace spool
