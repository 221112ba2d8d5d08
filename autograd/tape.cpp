#include "spool/autograd/tape.h"

#include <algorithm>

#include "spool/autograd/fingerprint.h"

namespace spool {

namespace {

// The emptied lists of the thread's last tape.  The next tape is likely as long, and growing new
// lists costs more than everything else a tape does.
struct Spare {
  IdTable<NodeId, Node> nodes;
  IdTable<ValueId, Value> values;
};
thread_local Spare spare;

}  // namespace

Tape::Tape(Stream& stream, TapeOptions options)
    : stream_(stream),
      options_(std::move(options)),
      nodes_(std::move(spare.nodes)),
      values_(std::move(spare.values)) {
  check_plan(options_.plan);
  check_stream(options_.loss_scale, "TapeOptions::loss_scale");
  check_stream(options_.random, "TapeOptions::random");
}

Tape::~Tape() {
  nodes_.clear();
  values_.clear();
  spare.nodes = std::move(nodes_);
  spare.values = std::move(values_);
}

// Work of another stream may not have written the tensor yet.
void Tape::check_stream(const Tensor& t, const char* what) const {
  check(!t || &t.stream() == &stream_, what, ": ", t.spec(),
        " is on another stream than the tape; allocate it on the tape's, or copy it there");
}

Var Tape::input(const Tensor& t, bool needs_grad) {
  check(bool(t), "input: the tensor is absent");
  check_stream(t, "input");
  const bool has_grad = needs_grad && options_.recording;
  return {*this, values_.add({.spec = t.spec(), .needs_grad = has_grad}), t};
}

bool Tape::needs_grad(const Operand& operand) const {
  if (!options_.recording) return false;
  if (operand.parameter) return operand.parameter->trainable;
  return values_[id_of(*operand.var)].needs_grad;
}

ValueId Tape::id_of(const Var& v) const {
  check(&v.tape() == this, "a value of another tape was used; an op cannot be on two tapes");
  return v.id();
}

ValueId Tape::resolve(const Operand& operand) {
  if (operand.var) return id_of(*operand.var);
  Parameter* p = operand.parameter;
  check(bool(p->data), "parameter ", p->name, " has no data");
  check_stream(p->data, p->name);
  const auto [at, fresh] = parameters_.try_emplace(p);
  if (fresh) {
    at->second =
        values_.add({.spec = p->data.spec(), .parameter = p, .needs_grad = needs_grad(operand)});
  }
  return at->second;
}

const char* Tape::producer_name(const Value& v) const {
  return v.producer < 0 ? "input" : nodes_[v.producer].op->name();
}

// The state of the tape before an op, to go back to if the op fails.
struct Tape::Snapshot {
  ValueId next_value;
  RegionId next_region;
  size_t next_plan_region, surveyed;
  Few<bool> had_grad = {};      // of each input
  Few<int> contributions = {};  // to each input's gradient
};

Few<Var> Tape::apply(std::unique_ptr<const Op> op, std::span<const Operand> operands) {
  check(!backward_began_, op->name(),
        ": backward has begun on this tape; a new step needs a new tape");
  Snapshot before{.next_value = values_.next_id(),
                  .next_region = regions_.next_id(),
                  .next_plan_region = next_plan_region_,
                  .surveyed = options_.survey ? options_.survey->forward.size() : 0};
  const NodeId id = nodes_.add({.op = std::move(op)});
  try {
    Few<Tensor> in;
    for (const Operand& operand : operands) {
      const ValueId v = resolve(operand);
      in.push_back(operand.var ? operand.var->tensor() : operand.parameter->data);
      node(id).inputs.push_back(v);
      before.contributions.push_back(value(v).contributions);
      before.had_grad.push_back(bool(operand.var ? value(v).grad : operand.parameter->grad));
    }
    const Needs needs = record(id, in);
    if (options_.survey) survey_begin(options_.survey->forward);
    if (options_.offloader) options_.offloader->before_forward(id);
    const Few<Tensor> out = run(id, in);
    if (options_.recording) save_for_backward(id, needs, in, out);
    close_regions_at(id);
    Few<Var> vars;
    for (size_t i = 0; i < out.size(); ++i) vars.push_back({*this, node(id).outputs[i], out[i]});
    return vars;
  } catch (...) {
    restore(before);
    throw;
  }
}

// Adds the outputs of the last node, and tells which inputs need gradients.
Needs Tape::record(NodeId id, const Few<Tensor>& in) {
  Node& n = node(id);
  n.chunks = std::max(options_.plan.chunks.value_or(id, 1), 1);
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
    const int64_t max = n.op->max_chunks(specs);
    check(n.chunks <= max, "plan: ", n.chunks, " chunks for node ", id, " (", n.op->name(),
          "), which can be cut into at most ", max);
  }
  const Specs outputs = n.op->infer(specs);
  for (ValueId v : n.inputs) {
    if (value(v).needs_grad) value(v).contributions += n.chunks;
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool has_grad = needs_any && n.op->differentiable(static_cast<int>(k));
    n.outputs.push_back(values_.add({.spec = outputs[k], .producer = id, .needs_grad = has_grad}));
  }
  check_fingerprint(options_.plan, n, id, values_);
  open_regions_at(id);
  return needs;
}

Few<Tensor> Tape::run(NodeId id, const Few<Tensor>& in) {
  Node& n = node(id);
  ++n.runs;
  const TraceScope scope(stream_.trace(), backward_began_ ? "replay" : "forward", *n.op, id);
  Few<Tensor> out;
  for (ValueId v : n.outputs) {
    out.push_back(Tensor(value(v).spec, stream_, {.name = n.op->name()}));
  }
  Forward forward(*this, n, id, in, out);
  n.op->forward(forward);
  return out;
}

void Tape::survey_begin(IdTable<NodeId, double>& times) {
  check(stream_.device().type == DeviceType::meta, "survey: only a tape on meta can be surveyed");
  times.push_back(static_cast<MetaStream&>(stream_).now());
}

// Removes the last node, which has failed.
void Tape::restore(const Snapshot& before) {
  Node& n = nodes_.back();
  for (size_t i = 0; i < before.had_grad.size(); ++i) {
    Value& v = value(n.inputs[i]);
    if (!before.had_grad[i]) (v.parameter ? v.parameter->grad : v.grad) = {};
    v.contributions = before.contributions[i];
  }
  if (options_.survey) options_.survey->forward.resize(before.surveyed);
  nodes_.pop_back();
  std::erase_if(parameters_, [&](const auto& known) { return known.second >= before.next_value; });
  values_.resize(static_cast<size_t>(before.next_value));
  regions_.resize(static_cast<size_t>(before.next_region));
  std::erase_if(open_regions_, [&](RegionId r) { return r >= before.next_region; });
  next_plan_region_ = before.next_plan_region;
}

}  // namespace spool
