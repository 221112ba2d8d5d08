#pragma once

// An Op is one differentiable step, written once: the specs of its outputs, forward, what it saves,
// and backward.  It launches kernels and knows no device; costs are the kernels'.
// docs/adding-an-op.md shows how to write one.

#include <array>
#include <cstdint>

#include "spool/autograd/attributes.h"
#include "spool/autograd/checks/gradient_check.h"
#include "spool/autograd/few.h"
#include "spool/autograd/plan.h"
#include "spool/kernels/launch.h"

namespace spool {

using Specs = Few<Spec>;

class Gradients;  // gradients.h
class Regions;    // regions.h
struct Node;      // program.h
struct Program;
struct TapeOptions;  // tape_options.h

// What the ops of a tape share.
struct OpContext {
  Stream& stream;
  const TapeOptions& options;
  const Program& program;
  Gradients& gradients;
};

// The kind of an op, for rules about all ops of a kind, such as what to recompute.  A norm's first
// output is what it normalises; its others are statistics, which are small and kept.
enum class OpKind : uint8_t { norm, activation, attention, product, other };
template <>
inline constexpr std::array enumerator_names<OpKind>{"norm", "activation", "attention", "product",
                                                     "other"};

// An input or an output of an op, by position.
struct Slot {
  bool output = false;
  int index = 0;
};
constexpr Slot in(int i) { return {false, i}; }
constexpr Slot out(int i) { return {true, i}; }
using Slots = Few<Slot>;

// Which inputs need a gradient.
class Needs {
 public:
  bool operator[](int i) const { return bits_ >> i & 1; }
  bool any() const { return bits_ != 0; }
  void set(int i) { bits_ |= 1u << i; }

 private:
  uint32_t bits_ = 0;
};

// What an op's forward() sees of its tape.
class Forward {
 public:
  // With a check, what it hands out is checked.
  Forward(const OpContext& context, NodeId id, const Few<Tensor>& inputs,
          const Few<Tensor>& outputs, GradientCheck* check = nullptr);

  // The first N inputs; optional ones that the op was not given are absent.  It has N outputs, or
  // more.
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

// What an op's backward() sees of its tape.  A gradient asked for must be written; one that is not
// needed is absent.
class Backward {
 public:
  Backward(const OpContext& context, Regions& regions, NodeId id, GradientCheck* check = nullptr);

  // The tensors that saves() named, in its order; at most as many.
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

  // Makes the output's gradient, in the input's shape, that of the input.  Shares memory if
  // possible; what is shared is copied before it is written to.
  void pass(int input, int output = 0);
  // The same with some consecutive elements of the output's gradient.
  void pass_part(int input, int output, Range elements);
  // Makes that saved tensor the gradient of the input.
  void pass_saved(int input, int saved);
  // Whether the output's gradient is known to be 1: it is a root of backward() without a gradient
  // of its own, or was passed the gradient of such a root.
  bool grad_output_is_one(int output) const;

  int chunks() const;
  NodeId node() const;
  int64_t first_element(const View&) const;
  View random() const;
  View loss_scale() const;
  Stream& stream() const { return context_.stream; }
  Tensor scratch(const Spec& spec);
  template <class Kernel>
  void launch(const Kernel& k) {
    spool::launch(k, stream());
  }

 private:
  template <size_t N, class F>
  static auto each(F f) {
    std::array<decltype(f(0)), N> all;
    for (size_t i = 0; i < N; ++i) all[i] = f(static_cast<int>(i));
    return all;
  }
  const Tensor& saved_tensor(int i);
  void receive(int input, const Tensor& gradient, bool is_one = false);

  const OpContext& context_;
  Regions& regions_;
  const Node& node_;
  NodeId id_;
  GradientCheck* check_;
};

class Op {
 public:
  virtual ~Op() = default;

  // A string literal.
  virtual const char* name() const = 0;

  virtual OpKind kind() const { return OpKind::other; }

  // Everything in which two ops of this name may differ, for fingerprints and people; see
  // attributes.h.
  virtual std::string attributes() const { return {}; }

  // The dimensions of inputs and outputs in index notation: "nk,ok->no".  The op can be cut into
  // parts along a lower-case index; it needs a capital one whole.  An index missing on the right is
  // summed over.  The first index of a term stands for all dimensions, possibly none, that the
  // term's other indices leave.  Tensors that the notation does not mention are used whole.
  virtual const char* indices() const = 0;

  // The specs of the outputs.  Throws if the inputs do not fit.
  virtual Specs infer(const Specs& in) const = 0;

  virtual void forward(Forward&) const = 0;

  // If present, output 0, which is then no memory of its own but a view of input 0, in the shape of
  // its spec.  The view is not made where the output has a place already, as in a chunk: forward()
  // copies if its output is not where the view would be.
  virtual Tensor view(const Tensor& input, const Spec& output) const {
    (void)input, (void)output;
    return {};
  }

  // The inputs and outputs that backward reads, given which inputs need a gradient.
  virtual Slots saves(const Needs&) const = 0;

  virtual void backward(Backward&) const = 0;

  // Whether output i has a gradient.  Outputs that exist only for backward have none.
  virtual bool differentiable(int output) const { return output == 0; }

  // Whether it reads inputs of the types that are only stored, f16 and i8, and converts them
  // itself; a tape refuses to apply other ops to them.
  virtual bool reads_stored_types() const { return false; }

  // Whether forward() can run again with the same result and no other effect.
  virtual bool recomputable() const { return true; }

  // Whether forward() divides by a number of rows that only the whole batch knows, unless the tape
  // has a loss scale.
  virtual bool needs_loss_scale() const { return false; }

  // Number of chunks the work can be cut into, to shrink its scratch memory.
  virtual int64_t max_chunks(const Specs&) const { return 1; }
};

}  // namespace spool
