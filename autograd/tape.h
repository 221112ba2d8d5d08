#pragma once

// A tape lists every op and every value of one step, in order of execution.  Forward appends to it;
// backward walks it from the end.  It is the only representation of a program, and the planner's
// only view of a model: position i of the tape is position i of the Plan.
//
// A Var is a handle to a value with a past; a Tensor is memory.  Backward code holds only memory,
// so there is nothing to detach and no version to count.  Whether the tape records, and whether it
// trains, is decided when it is made.  One thread per tape; a tape outlives its Vars, and its
// stream outlives the tape.

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "spool/autograd/id_table.h"
#include "spool/autograd/offload.h"
#include "spool/autograd/op.h"
#include "spool/autograd/parameter.h"
#include "spool/autograd/plan.h"
#include "spool/autograd/saved_tensor.h"

namespace spool {

// Positions in the tape's lists of regions and scopes; -1: none.
using RegionId = int32_t;
using ScopeId = int32_t;

// What a tape on the meta device measured of itself, for a planner.
struct Survey {
  IdTable<NodeId, double> forward, backward;  // when each node began, seconds
  // The node after which a value was first saved, and the node during or just before whose backward
  // its saved tensor was first read; -1: never.
  IdTable<ValueId, NodeId> first_saved, first_read;
};

struct TapeOptions {
  Plan plan = {};
  bool recording = true;  // false: nothing is saved, and there is no backward
  bool training = true;   // false: dropout does nothing
  // A promise that backward will start from every loss of this tape.  Losses then compute their
  // gradients in forward, so that the logits are computed once.
  bool backward_follows = false;
  // Number of tapes the step is cut into, whose gradients add up.
  int micro_batches = 1;
  // f32 (1): what a mean loss is multiplied by, 1 / the valid targets of all micro-batches. Absent:
  // 1 / the valid targets of this tape.
  Tensor loss_scale = {};
  // i32 (4): seed (2), step, micro-batch.  Required by ops that draw random numbers.
  Tensor random = {};
  // Index in the whole batch of the first row of this tape's tensors.
  int64_t first_row = 0;
  // Required if the plan or a scope offloads.  Outlives the tape.
  Offloader* offloader = nullptr;
  // Filled by the tape if given; on meta only.
  Survey* survey = nullptr;
};

struct Value {
  Spec spec = {};
  NodeId producer = -1;  // -1: a parameter or an input
  Parameter* parameter = nullptr;
  bool needs_grad = false;

  int contributions = 0;      // to its gradient, known so far
  int uses = 0;               // reads by backward that are still to come
  RegionId last_reader = -1;  // the innermost region around the last node that read it
  std::unique_ptr<SavedTensor> saved = nullptr;
  bool on_device = false;  // saved as it is: neither offloaded nor packed by a user's hooks
  Tensor live = {};        // unpacked or recomputed, until the last use
  Tensor grad = {};
  bool grad_is_one = false;
};

struct Node {
  std::unique_ptr<const Op> op;
  Few<ValueId> inputs = {}, outputs = {};
  Few<ValueId> saves = {};
  int chunks = 1;
  RegionId region = -1;  // the innermost around it
  int runs = 0;          // of its op's forward() so far, recomputations included
};

// A region, with its state on the tape; see regions.cpp and recompute.cpp.
struct TapeRegion {
  NodeId first = 0, last = -1;  // -1: it is still open
  RegionId parent = -1;
  NodeId plan_last = -1;    // its last node according to the plan
  bool one_op = false;      // made for a single node of which some outputs are to be recomputed
  bool recomputed = false;  // or backward has passed it, and nothing in it was needed
  std::vector<ValueId> reads = {};  // computed before it and read in it: saved to recompute it
  std::vector<ValueId> uses = {};   // computed in it and read in it by backward: not saved
  std::vector<ValueId> dropped_uses = {};  // uses that backward does not need any more
};

// A scope is ops that belong together, such as a layer.  Plans and reports may refer to it, and the
// caller may decide by hand what becomes of its values.
struct ScopeOptions {
  const char* name = "segment";  // interned
  bool recompute = false;        // recompute what is computed in it; see checkpoint()
  bool offload_inputs = false;   // offload what is computed before it, or an input, and saved in it
  bool offload_inside = false;   // offload what is computed in it and saved
};

// A scope, with its place on the tape.
struct TapeScope {
  ScopeOptions options = {};
  NodeId first = 0, last = -1;
  ScopeId parent = -1;
  RegionId region = -1;  // the one it opened
};

class Var {
 public:
  Var() = default;
  Var(Tape& tape, ValueId id, Tensor tensor) : tape_(&tape), id_(id), tensor_(std::move(tensor)) {}
  // An absent Var, a default-constructed one, has no tape and no value.
  explicit operator bool() const { return tape_ != nullptr; }
  Tape& tape() const {
    check(tape_ != nullptr, "an absent Var was used, one that no op and no input has made");
    return *tape_;
  }
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

  // Runs the op and appends it; returns its outputs.  If it throws, the tape is as before, except
  // for what the op has added to gradients that already existed.
  Few<Var> apply(std::unique_ptr<const Op> op, std::span<const Operand> inputs);

  // Once per tape.  If it throws, everything the tape saved is freed, and so are the gradients it
  // had begun; gradients it had added to are invalid.
  void backward(const Var& loss) { backward(std::vector<Root>{{loss}}); }
  void backward(const std::vector<Root>& roots);
  // Gradient of an input, after backward; absent if no root depends on it.
  Tensor grad(const Var& v) const { return values_[id_of(v)].grad; }

  Stream& stream() { return stream_; }
  const TapeOptions& options() const { return options_; }
  bool forms_gradients_in_forward() const {
    return options_.recording && options_.backward_follows;
  }
  bool needs_grad(const Operand&) const;
  const IdTable<NodeId, Node>& nodes() const { return nodes_; }
  const IdTable<ValueId, Value>& values() const { return values_; }
  const IdTable<ScopeId, TapeScope>& scopes() const { return scopes_; }

  // While it lives, these hooks are the innermost ones of the tape: they pack what is saved,
  // whatever the plan says, except for values that are to be recomputed.
  class HooksScope {
   public:
    HooksScope(Tape& tape, SavedTensorHooks& hooks) : tape_(tape) { tape.hooks_.push_back(&hooks); }
    ~HooksScope() { tape_.hooks_.pop_back(); }
    HooksScope(const HooksScope&) = delete;
    HooksScope& operator=(const HooksScope&) = delete;

   private:
    Tape& tape_;
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

 private:
  friend class Forward;
  friend class Backward;

  Value& value(ValueId v) { return values_[v]; }
  Node& node(NodeId n) { return nodes_[n]; }
  TapeRegion& region(RegionId r) { return regions_[r]; }
  const char* producer_name(const Value&) const;
  Placement placement(ValueId) const;
  Offload how_to_offload(ValueId) const;
  bool is_offloaded_by_scope(const Value&) const;
  ValueId id_of(const Var&) const;
  void check_stream(const Tensor&, const char* what) const;
  ValueId resolve(const Operand&);
  Needs record(NodeId, const Few<Tensor>& in);
  Few<Tensor> run(NodeId, const Few<Tensor>& in);
  void survey_begin(IdTable<NodeId, double>& times);
  struct Snapshot;
  void restore(const Snapshot&);

  // A read by backward that was counted, so that it can be taken back.
  struct CountedUse {
    ValueId value;
    RegionId level;        // see regions.cpp
    RegionId reader = -1;  // the region that reads it; -1: a node
  };
  using UndoLog = std::vector<CountedUse>;
  void save_for_backward(NodeId, const Needs&, const Few<Tensor>& in, const Few<Tensor>& out);
  void add_use(const CountedUse&, const Tensor&, UndoLog&);
  void drop_use(ValueId, RegionId level);
  void drop_read(ValueId, RegionId level);
  void free_unread();
  void save(ValueId, const Tensor&);
  void survey_saved(ValueId);
  // By a user's hooks or the offloader.
  static bool is_packed(const Value& v) { return v.saved && !v.on_device; }
  void pack(ValueId, const Tensor&, bool first);
  void release(ValueId);

  void enter_scope(const ScopeOptions&);
  void leave_scope();
  void open_region(TapeRegion);
  void open_regions_at(NodeId);
  void check_nesting_at(NodeId) const;
  void check_not_cut_short() const;
  void check_regions_end() const;
  void close_regions_at(NodeId);
  void close_region();
  void drop_unneeded_reads(TapeRegion&);
  void add_region_reads(NodeId, const Few<Tensor>& in, UndoLog&);
  RegionId level(RegionId reader, ValueId) const;
  bool is_inside(const TapeRegion& r, ValueId v) const { return values_[v].producer >= r.first; }

  struct RegionBuffers;
  void recompute(RegionId);
  RegionId region_of_missing(ValueId, RegionId level) const;
  void recompute_nodes(RegionId);
  void recompute_node(NodeId, RegionId, RegionBuffers&);
  void recompute_around(NodeId);
  bool is_missing(ValueId) const;
  RegionId outermost_region(NodeId) const;
  void leave_regions(NodeId);

  void begin_at(const Root&);
  void walk_backward();
  void prefetch_for(NodeId);
  void differentiate(NodeId);
  const Tensor& materialize(ValueId, RegionId level);
  const Tensor& saved_tensor(const Node& n, int i) {
    return materialize(n.saves[i], level(n.region, n.saves[i]));
  }
  void free_saved();
  Grad gradient_of(ValueId);
  Grad parameter_gradient(Value&);

  Stream& stream_;
  TapeOptions options_;
  std::vector<SavedTensorHooks*> hooks_;
  IdTable<NodeId, Node> nodes_;
  IdTable<ValueId, Value> values_;
  std::unordered_map<Parameter*, ValueId> parameters_;
  IdTable<RegionId, TapeRegion> regions_;  // by first node, an outer one before those in it
  std::vector<RegionId> open_regions_;     // the innermost last
  RegionId cut_short_ = -1;                // one of the plan that a checkpoint ended too early
  IdTable<ScopeId, TapeScope> scopes_;     // in the order they were opened
  std::vector<ScopeId> open_scopes_;
  size_t next_plan_region_ = 0;
  std::vector<ValueId> unread_;  // packed for a region that turned out not to need them
  NodeId backward_at_ = -1;      // the node whose backward runs, or is about to
  bool backward_began_ = false;
};

// The ops that the body applies to the tape are recomputed in backward, as far as it reads what
// they compute; until then only what they read from outside is saved.  Returns what the body
// returns.  (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".)  Checkpoints nest:
// an op at depth d runs at most d + 1 times.
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
  return tape.apply(std::make_unique<O>(std::forward<Attributes>(attributes)...), inputs).front();
}
template <class O, class... Attributes>
Var apply(Tape& tape, std::initializer_list<Operand> inputs, Attributes&&... attributes) {
  return apply<O>(tape, std::span(inputs.begin(), inputs.size()),
                  std::forward<Attributes>(attributes)...);
}

}  // namespace spool
