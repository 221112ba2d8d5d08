#pragma once

// An Op is one differentiable step, written once: what it yields, how, what backward will need of
// it, and backward.  It launches kernels and knows no device, and it has no cost of its own: the
// kernels have.  docs/adding-an-op.md shows how to write one.

#include <array>
#include <cstdint>

#include "spool/autograd/attributes.h"
#include "spool/autograd/few.h"
#include "spool/autograd/plan.h"
#include "spool/kernels/launch.h"

namespace spool {

using Specs = Few<Spec>;

class Tape;
struct Node;

// An input or an output of an op, by position.
struct Slot {
  bool output = false;
  int index = 0;
};
constexpr Slot in(int i) { return {false, i}; }
constexpr Slot out(int i) { return {true, i}; }
using Slots = Few<Slot>;

// Which inputs' gradients backward will be asked for.
class Needs {
 public:
  bool operator[](int i) const { return bits_ >> i & 1; }
  void set(int i) { bits_ |= 1u << i; }

 private:
  uint32_t bits_ = 0;
};

// What an op's forward() sees.
class Forward {
 public:
  Forward(Tape& tape, const Node& node, NodeId id, const Few<Tensor>& inputs,
          const Few<Tensor>& outputs)
      : tape_(tape), node_(node), id_(id), inputs_(inputs), outputs_(outputs) {}

  // The first N of them; what the op was not given is absent.
  template <size_t N>
  std::array<View, N> inputs() const {
    return first<N>(inputs_);
  }
  template <size_t N>
  std::array<View, N> outputs() const {
    return first<N>(outputs_);
  }

  // Into how many chunks the plan wants the work cut.
  int chunks() const;
  // Where on the tape this is; the same when the op is replayed.
  NodeId node() const { return id_; }
  // Where in the whole the leading index of these tensors begins.
  int64_t first_row() const;
  // The state of the random numbers, i32 (4); see kernels/dropout.h.  Throws if the tape has none.
  View random() const;
  // What a mean loss is to be multiplied by, f32 (1); absent: 1 / the valid targets given.
  View loss_scale() const;
  // Where the gradient of an input goes, for an op that forms it in forward because the tape was
  // promised that backward follows.  To be written at once.
  Grad grad_input(int i);

  Stream& stream();
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

  Tape& tape_;
  const Node& node_;
  NodeId id_;
  const Few<Tensor>& inputs_;
  const Few<Tensor>& outputs_;
};

// What an op's backward() sees.  A gradient asked for must be written; one that nobody wants is
// absent.
class Backward {
 public:
  Backward(Tape& tape, const Node& node, NodeId id) : tape_(tape), node_(node), id_(id) {}

  // What saves() named, in its order.
  template <size_t N>
  std::array<View, N> saved() {
    return each<N>([this](int i) { return saved_at(i); });
  }
  // Absent where nothing that was differentiated depends on the output.
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
  // Like grad_input(), and may lie over the gradient of that output, if nobody else reads it: for
  // kernels that read element i before they write it, and ops that ask for it first.
  Grad grad_input_over(int input, int output);

  // The gradient of the input is that of the output.  Shares memory where it can.
  void pass(int input, int output = 0);
  // The gradient of the input is that saved tensor.
  void pass_saved(int input, int saved);
  // Whether the gradient of the output is 1 because it is what backward() was called for.
  bool grad_output_is_one(int output) const;

  int chunks() const;
  NodeId node() const { return id_; }
  int64_t first_row() const;
  View random() const;
  View loss_scale() const;
  Stream& stream();
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
  void receive(int input, const Tensor& gradient);

  Tape& tape_;
  const Node& node_;
  NodeId id_;
};

class Op {
 public:
  virtual ~Op() = default;

  // A literal.
  virtual const char* name() const = 0;

  // All that two ops of the name may differ in, for fingerprints and people; see attributes.h.
  virtual std::string attributes() const { return {}; }

  // What each dimension is, inputs and outputs: "nk,ok->no".  Along a lower-case index the op can
  // be cut into parts; along a capital it looks, and must have it whole.  An index missing on the
  // right is summed away.  The first index of a term stands for as many dimensions as the others
  // leave, none included.  What the notation does not mention is used whole.
  virtual const char* indices() const = 0;

  // The specs of the outputs.  Throws a sentence where the inputs do not fit.
  virtual Specs infer(const Specs& in) const = 0;

  virtual void forward(Forward&) const = 0;

  // What backward reads, given which gradients it will be asked for.
  virtual Slots saves(const Needs&) const = 0;

  virtual void backward(Backward&) const = 0;

  // Whether output i has a gradient.  What is only kept for backward has none.
  virtual bool differentiable(int output) const { return output == 0; }

  // Whether forward() can run again and give the same, with no other effect.
  virtual bool recomputable() const { return true; }

  // Into how many chunks the work may be cut to shrink its scratch memory.
  virtual int64_t max_chunks(const Specs&) const { return 1; }
};

}  // namespace spool
