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

#include "spool/autograd/offload.h"
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

// What a tape on the meta device saw of itself, for whoever plans one like it.
struct Survey {
  std::vector<double> forward, backward;  // when each node began, seconds
  // Of each value: the node after which it was first saved, and the node before or in whose
  // backward what was saved of it was first read; -1: it was not.
  std::vector<NodeId> first_saved, first_read;
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
  // Needed where the plan, or a scope, offloads.  Outlives the tape.
  Offloader* offloader = nullptr;
  // On meta: to be filled.
  Survey* survey = nullptr;
};

struct Value {
  Spec spec = {};
  NodeId producer = -1;  // -1: a parameter or an input
  Parameter* parameter = nullptr;
  bool needs_grad = false;

  int contributions = 0;  // to its gradient, known so far
  int uses = 0;           // pending reads by backward of what is saved, or will be made again
  std::unique_ptr<SavedTensor> saved = nullptr;
  bool on_device = false;  // saved as it is, not by a user's hooks
  Tensor live = {};        // unpacked or recomputed, until the last use
  Tensor grad = {};
  bool grad_is_one = false;
};

struct Node {
  std::unique_ptr<const Op> op;
  Few<ValueId> inputs = {}, outputs = {};
  Few<ValueId> saves = {};
  int chunks = 1;
  int region = -1;           // the innermost of the tape's regions that it is in
  uint64_t scopes_hash = 0;  // a hash of the options of the scopes that it is in
  int runs = 0;              // so far, in forward and again
};

// A region as a tape meets it; see regions.cpp.
struct TapeRegion {
  NodeId first = 0, last = -1;  // -1: it is still open
  int parent = -1;
  NodeId plan_last = -1;  // where the plan has it end
  bool one_op = false;    // it stands for a node of which some outputs are to be recomputed
  bool replayed = false;
  std::vector<ValueId> reads = {};  // made before it, read in it: saved for when it runs again
  std::vector<ValueId> uses = {};   // made in it, read in it by backward: not saved
};

// Of ops that belong together, such as a layer, by which plans and people may speak of them; and,
// where the caller decides by hand, what becomes of their values.
struct ScopeOptions {
  const char* name = "segment";  // interned
  bool recompute = false;        // what is made in it; see checkpoint()
  bool offload_inputs = false;  // what is made before it and saved in it, the caller's own included
  bool offload_inside = false;  // what is made in it and saved
};

// A scope as a tape has it.
struct TapeScope {
  ScopeOptions options = {};
  NodeId first = 0, last = -1;
  int parent = -1;
  int region = -1;    // that it opened
  uint64_t hash = 0;  // of its options, and those of the scopes around it
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

  // Once per tape.  Where it throws, what the tape has saved is gone, and so are the gradients that
  // it has begun; those it has added to are of no use.
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
  const std::vector<TapeScope>& scopes() const { return scopes_; }

  // Makes these hooks the innermost ones of the tape while it lives.  What is saved meanwhile they
  // pack, whatever the plan says; what is to be recomputed nobody packs.
  class HooksScope {
   public:
    HooksScope(Tape& tape, SavedTensorHooks& hooks) : tape_(tape) { tape.hooks_.push_back(&hooks); }
    ~HooksScope() { tape_.hooks_.pop_back(); }
    HooksScope(const HooksScope&) = delete;
    HooksScope& operator=(const HooksScope&) = delete;

   private:
    Tape& tape_;
  };

  // The ops applied while it lives are a scope of their own.  Scopes nest.
  class Scope {
   public:
    Scope(Tape& tape, const ScopeOptions& options) : tape_(tape) { tape.enter(options); }
    ~Scope() { tape_.leave_scope(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tape& tape_;
  };

 private:
  friend class Forward;
  friend class Backward;

  Value& value(ValueId v) { return values_[static_cast<size_t>(v)]; }
  Node& node(NodeId n) { return nodes_[static_cast<size_t>(n)]; }
  TapeRegion& region(int r) { return regions_[static_cast<size_t>(r)]; }
  Placement placement(ValueId v) const;
  Offload how_to_offload(ValueId v) const;
  bool is_offloaded_by_scope(const Value&) const;
  ValueId add(Value);
  ValueId resolve(const Operand&);
  Needs record(NodeId, const Few<Tensor>& in);
  Few<Tensor> run(NodeId, const Few<Tensor>& in);

  void save_for_backward(NodeId, const Needs&, const Few<Tensor>& in, const Few<Tensor>& out);
  void save(ValueId, const Tensor&);
  void note_saved(ValueId);
  void put_away(ValueId, const Tensor&, bool first);
  struct Note {
    ValueId value;
    int level;
    int read_by = -1;  // a region
  };
  using Noted = std::vector<Note>;
  void use(ValueId, const Tensor&, int level, Noted&, int read_by = -1);
  void drop_use(ValueId, int level);
  void release(ValueId);
  struct Before;
  void undo(const Before&);

  void note_begin(std::vector<double>& times);
  void enter(const ScopeOptions&);
  void leave_scope();
  void open_region(TapeRegion);
  void open_regions_at(NodeId);
  void close_regions_at(NodeId);
  void close_region();
  void drop_what_nobody_needs(TapeRegion&);
  void read_by_regions(NodeId, const Few<Tensor>& in, Noted&);
  int level(int region, ValueId) const;
  bool made_in(const TapeRegion& r, ValueId v) const { return producer(v) >= r.first; }
  NodeId producer(ValueId v) const { return values_[static_cast<size_t>(v)].producer; }
  struct Passing;
  void replay(int region);
  void run_again(NodeId, int region, Passing&);
  bool is_wanted(ValueId) const;
  void replay_around(NodeId);
  int outermost_region(NodeId) const;
  void leave_regions(NodeId);

  void walk();
  void announce(NodeId);
  void differentiate(NodeId);
  const Tensor& fetch(ValueId, int level);
  const Tensor& fetch_saved(const Node& n, size_t i) {
    return fetch(n.saves[i], level(n.region, n.saves[i]));
  }
  void forget();
  Grad gradient_of(ValueId);
  Grad parameter_gradient(Value&);

  Stream& stream_;
  TapeOptions options_;
  std::vector<SavedTensorHooks*> hooks_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::unordered_map<Parameter*, ValueId> parameters_;
  std::vector<TapeRegion> regions_;  // by first node, the outer before the inner
  std::vector<int> open_;            // regions, the innermost last
  std::vector<TapeScope> scopes_;    // in the order they were opened
  std::vector<int> open_scopes_;
  size_t next_plan_region_ = 0;
  NodeId at_ = -1;  // the node that backward has come to
  bool spent_ = false;
};

// The ops that the body applies to the tape run again in backward, where it needs what they made;
// until then only what they read from outside is saved.  Returns what the body returns.  (Chen et
// al. 2016, "Training Deep Nets with Sublinear Memory Cost".)  Checkpoints nest: an op at depth d
// runs at most d + 1 times.
template <class Body>
decltype(auto) checkpoint(Tape& tape, Body&& body, ScopeOptions options = {}) {
  options.recompute = true;
  const Tape::Scope scope(tape, options);
  return std::forward<Body>(body)();
}

// The ops that the body applies are a scope, whose values go where the options say.
template <class Body>
decltype(auto) segment(Tape& tape, const ScopeOptions& options, Body&& body) {
  const Tape::Scope scope(tape, options);
  return std::forward<Body>(body)();
}

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
