#include "spool/autograd/tape.h"

#include <algorithm>

#include "spool/autograd/fingerprint.h"

namespace spool {

namespace {

// The lists of the thread's last tape, empty: the next one is likely as long, and to grow anew
// costs more than all else a tape does.
struct Spare {
  std::vector<Node> nodes;
  std::vector<Value> values;
};
thread_local Spare spare;

}  // namespace

Tape::Tape(Stream& stream, TapeOptions options)
    : stream_(stream),
      options_(std::move(options)),
      nodes_(std::move(spare.nodes)),
      values_(std::move(spare.values)) {
  static KeepHooks keep;
  hooks_.push_back(&keep);
  check_plan(options_.plan);
}

Tape::~Tape() {
  nodes_.clear();
  values_.clear();
  spare.nodes = std::move(nodes_);
  spare.values = std::move(values_);
}

Placement Tape::placement(ValueId v) const {
  const auto i = static_cast<size_t>(v);
  return i < options_.plan.placement.size() ? options_.plan.placement[i] : Placement::keep;
}

ValueId Tape::add(Value v) {
  values_.push_back(std::move(v));
  return static_cast<ValueId>(values_.size()) - 1;
}

Var Tape::input(const Tensor& t, bool needs_grad) {
  check(bool(t), "input: the tensor is absent");
  return {*this, add({.spec = t.spec(), .needs_grad = needs_grad && options_.recording}), t};
}

bool Tape::needs_grad(const Operand& operand) const {
  if (!options_.recording) return false;
  if (operand.parameter) return operand.parameter->trainable;
  return values_[static_cast<size_t>(operand.var->id())].needs_grad;
}

ValueId Tape::resolve(const Operand& operand) {
  if (operand.var) {
    check(&operand.var->tape() == this, "an op was applied to values of two tapes");
    return operand.var->id();
  }
  Parameter* p = operand.parameter;
  check(bool(p->data), "parameter ", p->name, " has no data");
  const auto [at, fresh] = parameters_.try_emplace(p);
  if (fresh) {
    at->second = add({.spec = p->data.spec(), .parameter = p, .needs_grad = needs_grad(operand)});
  }
  return at->second;
}

// ---------------------------------------------------------------------------------- forward

Few<Var> Tape::apply(std::unique_ptr<const Op> op, std::span<const Operand> operands) {
  check(!spent_, op->name(), ": this tape has gone backward; a new step needs a new tape");
  const auto id = static_cast<NodeId>(nodes_.size());
  const size_t values_before = values_.size();
  nodes_.push_back({.op = std::move(op)});
  Few<bool> had_grad;
  try {
    Few<Tensor> in;
    for (const Operand& operand : operands) {
      const ValueId v = resolve(operand);
      in.push_back(operand.var ? operand.var->tensor() : operand.parameter->data);
      node(id).inputs.push_back(v);
      had_grad.push_back(bool(operand.var ? value(v).grad : operand.parameter->grad));
    }
    const Needs needs = record(id, in);
    const Few<Tensor> out = run(id, in);
    if (options_.recording) save_for_backward(id, needs, in, out);
    Few<Var> vars;
    for (size_t i = 0; i < out.size(); ++i) vars.push_back({*this, node(id).outputs[i], out[i]});
    return vars;
  } catch (...) {
    undo(values_before, had_grad);
    throw;
  }
}

// Appends the outputs of the last node.
Needs Tape::record(NodeId id, const Few<Tensor>& in) {
  Node& n = node(id);
  const auto i = static_cast<size_t>(id);
  if (i < options_.plan.chunks.size()) n.chunks = std::max(options_.plan.chunks[i], 1);
  Needs needs;
  bool needs_any = false;
  Specs specs;
  for (size_t k = 0; k < in.size(); ++k) {
    specs.push_back(in[k].spec());
    Value& v = value(n.inputs[k]);
    if (!v.needs_grad) continue;
    needs.set(static_cast<int>(k));
    needs_any = true;
  }
  if (n.chunks > 1) {
    const int64_t most = n.op->max_chunks(specs);
    check(n.chunks <= most, "plan: ", n.chunks, " chunks for node ", id, " (", n.op->name(),
          "), which can be cut into at most ", most);
  }
  const Specs made = n.op->infer(specs);
  for (ValueId v : n.inputs) {
    if (value(v).needs_grad) value(v).contributions += n.chunks;
  }
  for (size_t k = 0; k < made.size(); ++k) {
    const bool has_grad = needs_any && n.op->differentiable(static_cast<int>(k));
    n.outputs.push_back(add({.spec = made[k], .producer = id, .needs_grad = has_grad}));
  }
  check_fingerprint(options_.plan, n, id, values_);
  return needs;
}

Few<Tensor> Tape::run(NodeId id, const Few<Tensor>& in) {
  const Node& n = node(id);
  Few<Tensor> out;
  for (ValueId v : n.outputs) {
    out.push_back(Tensor(value(v).spec, stream_, {.name = n.op->name()}));
  }
  Forward forward(*this, n, id, in, out);
  n.op->forward(forward);
  return out;
}

void Tape::save_for_backward(NodeId id, const Needs& needs, const Few<Tensor>& in,
                             const Few<Tensor>& out) {
  Node& n = node(id);
  Few<ValueId, 32> saved;
  const auto put_away = [&](ValueId v, const Tensor& t) {
    save(v, t);
    saved.push_back(v);
  };
  try {
    if (std::ranges::any_of(n.outputs, [&](ValueId v) { return value(v).needs_grad; })) {
      for (const Slot s : n.op->saves(needs)) {
        const auto i = static_cast<size_t>(s.index);
        put_away((s.output ? n.outputs : n.inputs)[i], (s.output ? out : in)[i]);
        n.saves.push_back((s.output ? n.outputs : n.inputs)[i]);
      }
    }
    n.held = is_recomputed(n);
    for (size_t i = 0; n.held && i < in.size(); ++i) put_away(n.inputs[i], in[i]);
  } catch (...) {
    for (ValueId v : saved) release(v);
    throw;
  }
}

// A value to be recomputed is saved as the inputs of the op that made it.
bool Tape::is_recomputed(const Node& n) const {
  const auto recomputed = [&](ValueId v) { return placement(v) == Placement::recompute; };
  if (!std::ranges::any_of(n.outputs, recomputed)) return false;
  check(n.op->replayable(), "plan: ", n.op->name(), " cannot be recomputed on this tape");
  return true;
}

void Tape::save(ValueId id, const Tensor& t) {
  Value& v = value(id);
  if (v.uses++ > 0) return;
  if (v.parameter) return;
  if (v.producer < 0) {
    v.live = t;
  } else if (placement(id) != Placement::recompute) {
    const char* made_by = node(v.producer).op->name();
    try {
      v.saved = hooks_.back()->pack(t, {.op = made_by, .value = id});
      check(bool(v.saved), made_by, ": the hook's pack() returned nothing for value ", id);
    } catch (...) {
      --v.uses;
      throw;
    }
  }
}

// Takes back the last node, which has failed.
void Tape::undo(size_t values_before, const Few<bool>& had_grad) {
  Node& n = nodes_.back();
  for (size_t i = 0; i < had_grad.size(); ++i) {
    Value& v = value(n.inputs[i]);
    if (!had_grad[i]) (v.parameter ? v.parameter->grad : v.grad) = {};
  }
  const bool counted = !n.outputs.empty();
  for (ValueId v : n.inputs) {
    if (counted && value(v).needs_grad) value(v).contributions -= n.chunks;
  }
  nodes_.pop_back();
  std::erase_if(parameters_, [&](const auto& known) {
    return static_cast<size_t>(known.second) >= values_before;
  });
  values_.resize(values_before);
}

}  // namespace spool
