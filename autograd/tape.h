#pragma once

// The tape lists, in order of execution, every op and every value of one step.  Forward appends to
// it; backward walks it from the end.  It is the only representation of a program, and the
// planner's only view of a model: position i of the tape is position i of the Plan.
//
// Var is a handle to a value with a past; Tensor is memory.  Backward code holds only memory, so
// there is nothing to detach and no version to count.  Whether the tape records, and whether it
// trains, is decided when it is made.  One thread per tape; a tape outlives its Vars, and its
// stream outlives the tape.

#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spool/autograd/op.h"
#include "spool/autograd/plan.h"
#include "spool/autograd/saved_tensor.h"

namespace spool {

// A tensor that training changes.  Its address must not change while a tape knows it.
struct Parameter {
  const char* name = "parameter";  // interned
  Tensor data = {};
  // Absent until backward first writes it, then added to, until the optimizer lets it go.  f32
  // where it receives more than one contribution a step (micro-batches, ties, chunks), else of the
  // type of the data.
  Tensor grad = {};
  bool trainable = true;
};

struct TapeOptions {
  Plan plan = {};
  bool recording = true;  // false: nothing is saved, and there is no backward
  bool training = true;   // false: dropout does nothing
  // A promise that backward will start from every loss of this tape.  Losses then form their
  // gradients in forward, which saves computing logits twice.
  bool backward_follows = false;
  // Into how many tapes the step is cut, whose gradients add up.
  int micro_batches = 1;
  // f32 (1): what a mean loss is multiplied by; 1 / the valid targets of all micro-batches. Absent:
  // those of this tape.
  Tensor loss_scale = {};
  // i32 (4): seed (2), step, micro-batch.  Needed by ops that draw.
  Tensor random = {};
  // Where in the whole the leading index of this tape's tensors begins.
  int64_t first_row = 0;
};

struct Value {
  Spec spec = {};
  NodeId producer = -1;  // -1: a parameter or an input
  Parameter* parameter = nullptr;
  bool needs_grad = false;

  int contributions = 0;  // to its gradient, known so far
  int uses = 0;           // pending reads by backward
  std::unique_ptr<SavedTensor> saved = nullptr;
  Tensor live = {};  // unpacked or recomputed, until the last use
  Tensor grad = {};
  bool grad_is_one = false;
};

struct Node {
  std::unique_ptr<const Op> op;
  Few<ValueId> inputs = {}, outputs = {};
  Few<ValueId> saves = {};
  int chunks = 1;
  bool held = false;  // its inputs are saved so that it can run again
};

class Var {
 public:
  Var() = default;
  Var(Tape& tape, ValueId id, Tensor tensor) : tape_(&tape), id_(id), tensor_(std::move(tensor)) {}
  Tape& tape() const { return *tape_; }
  ValueId id() const { return id_; }
  const Spec& spec() const { return tensor_.spec(); }
  const Shape& shape() const { return tensor_.shape(); }
  const Tensor& tensor() const { return tensor_; }

 private:
  Tape* tape_ = nullptr;
  ValueId id_ = -1;
  Tensor tensor_;
};

// What an op is applied to: a value of the same tape, or a parameter of the model.
class Operand {
 public:
  Operand(const Var& v) : var(&v) {}
  Operand(Parameter& p) : parameter(&p) {}
  const Var* var = nullptr;
  Parameter* parameter = nullptr;
};

// Something to differentiate.  Without a gradient: 1, and y has one element.
struct Root {
  Var y;
  Tensor dy = {};
};

class Tape {
 public:
  explicit Tape(Stream& stream, TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The caller's own tensor.
  Var input(const Tensor& t, bool needs_grad = false);

  // Runs the op and appends it; returns its outputs.  Where it throws, the tape is as before; what
  // the op has added to a gradient that was there stays.
  Few<Var> apply(std::unique_ptr<const Op> op, std::span<const Operand> inputs);

  // Once per tape.  Where it throws, what the tape has saved is gone.
  void backward(const Var& loss) { backward(std::vector<Root>{{loss}}); }
  void backward(const std::vector<Root>& roots);
  // Of an input, after backward; absent if nothing depended on it.
  Tensor grad(const Var& v) const { return values_[static_cast<size_t>(v.id())].grad; }

  Stream& stream() { return stream_; }
  const TapeOptions& options() const { return options_; }
  bool forms_gradients_in_forward() const {
    return options_.recording && options_.backward_follows;
  }
  bool needs_grad(const Operand&) const;
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Value>& values() const { return values_; }

  // Makes these hooks the innermost ones of the tape while it lives.
  class HooksScope {
   public:
    HooksScope(Tape& tape, SavedTensorHooks& hooks) : tape_(tape) { tape.hooks_.push_back(&hooks); }
    ~HooksScope() { tape_.hooks_.pop_back(); }
    HooksScope(const HooksScope&) = delete;
    HooksScope& operator=(const HooksScope&) = delete;

   private:
    Tape& tape_;
  };

 private:
  friend class Forward;
  friend class Backward;

  Value& value(ValueId v) { return values_[static_cast<size_t>(v)]; }
  Node& node(NodeId n) { return nodes_[static_cast<size_t>(n)]; }
  Placement placement(ValueId v) const;
  ValueId add(Value);
  ValueId resolve(const Operand&);
  Needs record(NodeId, const Few<Tensor>& in);
  Few<Tensor> run(NodeId, const Few<Tensor>& in);
  void save_for_backward(NodeId, const Needs&, const Few<Tensor>& in, const Few<Tensor>& out);
  bool is_recomputed(const Node&) const;
  void save(ValueId, const Tensor&);
  void undo(size_t values, const Few<bool>& had_grad);
  void walk();
  void differentiate(NodeId);
  const Tensor& fetch(ValueId);
  void replay(NodeId);
  void release(ValueId);
  void forget();
  Grad gradient_of(ValueId);
  Grad parameter_gradient(Value&);

  Stream& stream_;
  TapeOptions options_;
  std::vector<SavedTensorHooks*> hooks_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::unordered_map<Parameter*, ValueId> parameters_;
  bool spent_ = false;
};

// Applies an op made of these attributes; returns its first output.
template <class O, class... Attributes>
Var apply(Tape& tape, std::span<const Operand> inputs, Attributes&&... attributes) {
  return tape.apply(std::make_unique<O>(std::forward<Attributes>(attributes)...), inputs).front();
}
template <class O, class... Attributes>
Var apply(Tape& tape, std::initializer_list<Operand> inputs, Attributes&&... attributes) {
  return apply<O>(tape, std::span(inputs.begin(), inputs.size()),
                  std::forward<Attributes>(attributes)...);
}

}  // namespace spool
