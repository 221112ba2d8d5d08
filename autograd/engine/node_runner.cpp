#include "spool/autograd/engine/node_runner.h"

#include "spool/autograd/checks/gradient_check.h"
#include "spool/autograd/engine/regions.h"
#include "spool/autograd/survey.h"

namespace spool {

NodeRunner::NodeRunner(Stream& stream, const TapeOptions& options, Program& program,
                       Gradients& gradients)
    : context_{.stream = stream, .options = options, .program = program, .gradients = gradients},
      program_(program),
      checks_gradients_(GradientCheck::covers(stream)) {}

// The stream waits for what was begun and not read, whose memory is about to be freed.
NodeRunner::~NodeRunner() {
  for (const auto& [op, begun] : begun_) {
    try {
      context_.stream.wait(begun.done);
    } catch (...) {  // of a device that has failed
    }
  }
}

Few<Tensor> NodeRunner::recompute(NodeId id, const Few<Tensor>& in) {
  const TapeOptions& options = context_.options;
  const bool in_forward = options.chunk && options.chunk->in_forward;
  const SurveyScope surveyed(options.work_survey(), context_.stream,
                             in_forward ? Phase::forward : Phase::recompute, options.whole_node(id),
                             *program_.nodes[id].op);
  return run(id, in, in_forward ? "forward" : "replay");
}

void NodeRunner::place(ValueId v, const Tensor& destination) {
  if (!places_.contains(v)) places_.resize(static_cast<size_t>(v) + 1);
  places_[v] = destination;
}

TraceContext NodeRunner::trace_context(NodeId id, const char* task) const {
  const ChunkOfTape* const chunk = context_.options.chunk;
  return {.task = task,
          .op = program_.nodes[id].op->name(),
          .node = context_.options.whole_node(id),
          .chunk = chunk ? chunk->number : -1};
}

// Where the node's outputs go: to their places, to memory of their own, or the first to an input's.
Few<Tensor> NodeRunner::outputs(const Node& n, const Few<Tensor>& in) {
  Few<Tensor> out;
  if (n.op->gathers()) {
    out.push_back(gathered(*n.op, in[0]));
    return out;
  }
  for (const ValueId v : n.outputs) {
    const Spec& spec = program_.values[v].spec;
    Tensor t = places_.contains(v) ? places_[v] : Tensor();
    if (!t && out.empty() && !in.empty()) t = n.op->view(in[0], spec);
    if (!t) t = Tensor(spec, context_.stream, {.name = Name::never_freed(n.op->name())});
    out.push_back(std::move(t));
  }
  return out;
}

bool NodeRunner::begin(const Op& op) {
  if (begun_.contains(&op)) return false;
  begun_[&op] = op.begin(op.gathers()->data, context_.stream);
  return true;
}

Tensor NodeRunner::gathered(const Op& op, const Tensor& in) {
  const auto begun = begun_.find(&op);
  const Begun work = begun == begun_.end() ? op.begin(in, context_.stream) : begun->second;
  if (begun != begun_.end()) begun_.erase(begun);
  context_.stream.wait(work.done);
  return work.output;
}

Few<Tensor> NodeRunner::run(NodeId id, const Few<Tensor>& in, const char* task) {
  Node& n = program_.nodes[id];
  Stream& stream = context_.stream;
  ++n.runs;
  const TraceScope scope(stream.trace(), [&] { return trace_context(id, task); });
  const Few<Tensor> out = outputs(n, in);
  if (!checks_gradients_) {
    Forward forward(context_, id, in, out);
    n.op->forward(forward);
    return out;
  }
  GradientCheck gradients(stream, n.op->name());
  Forward forward(context_, id, in, out, &gradients);
  n.op->forward(forward);
  gradients.finish();
  in_forward_.resize(program_.nodes.size());
  in_forward_[id] = gradients.handed_out();
  return out;
}

void NodeRunner::backward(NodeId id, Regions& regions) {
  const Node& n = program_.nodes[id];
  const TraceScope scope(context_.stream.trace(), [&] { return trace_context(id, "backward"); });
  if (!checks_gradients_) {
    Backward backward(context_, regions, id);
    n.op->backward(backward);
    return;
  }
  GradientCheck gradients(context_.stream, n.op->name());
  Backward backward(context_, regions, id, &gradients);
  n.op->backward(backward);
  gradients.finish();
  check_all_asked_for(id, gradients);
}

void NodeRunner::check_all_asked_for(NodeId id, const GradientCheck& gradients) const {
  const Node& n = program_.nodes[id];
  const uint32_t all = gradients.handed_out() | in_forward_.value_or(id, 0);
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    check(!program_.values[n.inputs[i]].needs_grad || all >> i & 1, n.op->name(),
          ": it never asks for the gradient of input ", i, ", counted from 0, which is needed");
  }
}

}  // namespace spool
