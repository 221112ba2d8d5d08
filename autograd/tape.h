// Public: one of the headers of docs/public-headers.md.
#pragma once

// A tape lists every op and every value of one step, in order of execution.  Forward appends to it;
// backward walks it from the end.  It is the only representation of a program, and the planner's
// only view of a model: position i of the tape is position i of the Plan.
//
// A Var is a handle to a value with a past; a Tensor is memory.  Backward code holds only memory,
// so there is nothing to detach and no version to count.  Whether the tape records, and whether it
// trains, is decided when it is made.  One thread per tape; a tape outlives its Vars, and its
// stream outlives the tape.
//
// The tape's parts: Program is what it has recorded, Saving owns what is saved for backward,
// Regions recomputes what is not, Gradients adds up gradients, NodeRunner runs the ops, and
// ChunkRunner the regions that run in chunks.  The ops of such a region run when its last op is
// applied; of their outputs only its leaves can be read afterwards.

#include <span>
#include <unordered_map>
#include <vector>

#include "spool/autograd/chunks/chunk_runner.h"
#include "spool/autograd/chunks/deferred.h"
#include "spool/autograd/engine/gradients.h"
#include "spool/autograd/engine/node_runner.h"
#include "spool/autograd/engine/regions.h"
#include "spool/autograd/engine/saving.h"
#include "spool/autograd/program.h"
#include "spool/autograd/tape_options.h"

namespace spool {

class Tape;

class Var {
 public:
  Var() = default;
  Var(Tape& tape, ValueId id, Tensor tensor) : tape_(&tape), id_(id), tensor_(std::move(tensor)) {}
  // Computed later, by a region that runs in chunks.
  Var(Tape& tape, ValueId id, std::shared_ptr<const DeferredTensor> later)
      : tape_(&tape), id_(id), later_(std::move(later)) {}
  // An absent Var, a default-constructed one, has no tape and no value.
  explicit operator bool() const { return tape_ != nullptr; }
  Tape& tape() const {
    check(tape_ != nullptr, "an absent Var was used, one that no op and no input has made");
    return *tape_;
  }
  ValueId id() const { return id_; }
  const Spec& spec() const { return later_ ? later_->spec : tensor_.spec(); }
  const Shape& shape() const { return spec().shape; }
  // Whether tensor() can be called.
  bool is_readable() const { return bool(tensor_if_computed()); }
  // Throws if it is computed in a region that runs in chunks, unless it is a leaf of the region and
  // the region has ended.
  const Tensor& tensor() const;

 private:
  friend class Tape;
  // As tensor(), for the tape itself; absent until the region has ended.
  const Tensor& tensor_if_computed() const { return later_ ? later_->tensor : tensor_; }

  Tape* tape_ = nullptr;
  ValueId id_ = -1;
  Tensor tensor_ = {};
  std::shared_ptr<const DeferredTensor> later_ = nullptr;  // in place of tensor_
};

// What an op is applied to: a value of the same tape, or a parameter of the model.
class Operand {
 public:
  Operand(const Var& v) : var(&v) {}
  Operand(Parameter& p) : parameter(&p) {}
  // Throws if it is absent, or a parameter without data.
  const Spec& spec() const;
  const Shape& shape() const { return spec().shape; }
  const Var* var = nullptr;
  Parameter* parameter = nullptr;
};

// The tape of the values among an op's operands.  Throws if all are parameters.
Tape& tape_of(const char* op, std::span<const Operand> operands);

// "f32 (4, 3) and f32 (3)"
std::string in_words(std::span<const Operand> operands);

// A value to differentiate, and its gradient.  Without a gradient: 1, and y has one element.
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

  // A value for the caller's tensor.
  Var input(const Tensor& t, bool needs_grad = false);
  // The part that this rank has of what the model sees whole, on a tape that does not run.
  Var input(const Tensor& part, const Spec& whole);
  // A parameter as a value, for ops of which it is the only operand.
  Var input(Parameter& p);

  // Runs the op and appends it; returns its outputs.  If it throws, the tape is as before, except
  // for what the op has added to gradients that already existed; a scope that the error leaves
  // ends with the op before.  Not to be called in an op's forward(), or in a hook.
  Few<Var> apply(std::shared_ptr<const Op> op, std::span<const Operand> inputs);

  // Begins what an op of kind gather does; apply() then waits for it.
  void begin(const Op& op) {
    if (options_.runs) runner_.begin(op);
  }

  // Once per tape.  If it throws, everything the tape saved is freed, and so are the gradients it
  // had begun; gradients it had added to are invalid.  If the plan is for a longer tape, it throws
  // too, but changes nothing.
  void backward(const Var& loss) { backward(std::vector<Root>{{loss}}); }
  void backward(const std::vector<Root>& roots);
  // Gradient of an input, after backward; absent if no root depends on it.
  Tensor grad(const Var& v) const {
    const Parameter* const p = program_.values[id_of(v)].trains;
    return p ? p->grad : gradients_.of(id_of(v));
  }

  Stream& stream() { return stream_; }
  const TapeOptions& options() const { return options_; }
  bool forms_gradients_in_forward() const { return options_.forms_gradients_in_forward(); }
  bool needs_grad(const Operand&) const;

  // What it has recorded.
  const Program& program() const { return program_; }
  const IdTable<NodeId, Node>& nodes() const { return program_.nodes; }
  const IdTable<ValueId, Value>& values() const { return program_.values; }
  // Moves it out, for use when the tape is gone; throws within a scope.  Nothing can be applied to
  // the tape afterwards.
  Program take_program();
  // Of a tape that does not run: the tensor of an input.
  const Tensor& given(ValueId input) const { return given_.at(input); }
  // Notes that the caller reads the value's tensor.
  void observe(ValueId v) {
    if (program_.values.contains(v)) program_.values[v].is_observed = true;
  }
  // Whether a saved value is still packed by hooks, or offloaded.
  bool is_packed(ValueId v) const { return saving_.is_packed(v); }

  // While it lives, these hooks are the innermost ones of the tape: they pack what is saved,
  // whatever the plan says, except for values that are to be recomputed.
  class HooksScope {
   public:
    HooksScope(Tape& tape, SavedTensorHooks& hooks) : saving_(tape.saving_) {
      check(tape.options_.runs, "hooks: ranks apply a loss as it was recorded, without its hooks");
      saving_.push(hooks);
    }
    ~HooksScope() { saving_.pop_hooks(); }
    HooksScope(const HooksScope&) = delete;
    HooksScope& operator=(const HooksScope&) = delete;

   private:
    Saving& saving_;
  };

  // The ops applied while it lives form a scope.  Scopes nest.
  class Scope {
   public:
    Scope(Tape& tape, const ScopeOptions& options) : tape_(tape) { tape.enter_scope(options); }
    ~Scope() { tape_.leave_scope(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tape& tape_;
  };

  class Chunk;  // chunks/chunk.h

 private:
  friend class Var;
  ValueId id_of(const Var&) const;
  void check_stream(const Tensor&, const char* what) const;
  void check_not_applying(const char* what) const;
  ValueId resolve(const Operand&);
  void begin_homes(Homes&);
  const Tensor& data_on_device(const Parameter&);

  struct Before;
  struct Applying;
  Few<Tensor> add_inputs(NodeId, std::span<const Operand>);
  void check_readable(NodeId, ValueId) const;
  [[noreturn]] void fail_deferred(ValueId, const std::string& what) const;
  void add_outputs(NodeId);
  Few<Var> run(NodeId, const Few<Tensor>& in);
  Few<Var> promise(NodeId);
  // chunks/deferred.cpp
  Few<Var> defer(NodeId, RegionId, const Few<Tensor>& in);
  void complete(RegionId, NodeId last);
  void check_scopes_ended(RegionId, NodeId last) const;
  void save(RegionId, const ChunkedRegion&, const Tensors&);
  void ignore_inner_placements(const ChunkedRegion&, const std::vector<ValueId>& leaves);
  void run_once(NodeId, Tensors&);
  void restore(const Before&);

  void enter_scope(const ScopeOptions&);
  void leave_scope();

  void begin_at(const Root&);
  void walk_backward();
  void log_idle_checkpoints() const;
  void differentiate(NodeId);
  void differentiate_chunks(RegionId);

  Stream& stream_;
  TapeOptions options_;
  Program program_;
  Gradients gradients_;
  Saving saving_;
  NodeRunner runner_;
  ChunkRunner chunks_;
  Regions regions_;
  Deferred deferred_;
  std::unordered_map<Parameter*, ValueId> parameters_;
  std::unordered_map<ValueId, Tensor> given_;
  Homes* homes_ = nullptr;  // of parameters that live on the host
  bool backward_began_ = false;
  bool applying_ = false;         // an op runs in forward, or is saved
  ScopeId idle_checkpoint_ = -1;  // the first that may free nothing
};

// The value of a Var of one element, such as a loss, after all work enqueued before.  Throws for
// other values, and on meta, which has none.
inline double item(const Var& v) { return item(v.tensor()); }

// The ops that the body applies to the tape are recomputed in backward, as far as it reads what
// they compute; until then only what they read from outside is saved.  Returns what the body
// returns.  (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".)  Checkpoints nest:
// an op at depth d runs at most d + 1 times.
//
// A value that the body computes and a later op saves is saved.  If these are all that backward
// reads, as with a body of one linear between two others, the checkpoint frees nothing; backward()
// says so in the log (runtime/log.h), and so does idle_checkpoints() of the program.
template <class Body>
decltype(auto) checkpoint(Tape& tape, Body&& body, ScopeOptions options = {}) {
  options.recompute = true;
  const Tape::Scope scope(tape, options);
  return std::forward<Body>(body)();
}

// The ops that the body applies form a scope with these options.
template <class Body>
decltype(auto) segment(Tape& tape, const ScopeOptions& options, Body&& body) {
  const Tape::Scope scope(tape, options);
  return std::forward<Body>(body)();
}

// Applies an op constructed from these attributes; returns its first output.
template <class O, class... Attributes>
Var apply(Tape& tape, std::span<const Operand> inputs, Attributes&&... attributes) {
  return tape.apply(std::make_shared<const O>(std::forward<Attributes>(attributes)...), inputs)
      .front();
}
template <class O, class... Attributes>
Var apply(Tape& tape, std::initializer_list<Operand> inputs, Attributes&&... attributes) {
  return apply<O>(tape, std::span(inputs.begin(), inputs.size()),
                  std::forward<Attributes>(attributes)...);
}
// On the tape of the operands.
template <class O, class... Attributes>
Var apply(std::span<const Operand> operands, Attributes&&... attributes) {
  auto op = std::make_shared<const O>(std::forward<Attributes>(attributes)...);
  Tape& tape = tape_of(op->name(), operands);
  return tape.apply(std::move(op), operands).front();
}
template <class O, class... Attributes>
Var apply(std::initializer_list<Operand> operands, Attributes&&... attributes) {
  return apply<O>(std::span(operands.begin(), operands.size()),
                  std::forward<Attributes>(attributes)...);
}

}  // namespace spool
