// Backward along the tape: which nodes are differentiated, which saved tensors are unpacked or
// recomputed, and where gradients go.

#include <algorithm>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/elementwise.h"

namespace spool {

void Tape::backward(const std::vector<Root>& roots) {
  check(options_.recording, "backward: this tape does not record");
  check(!backward_began_, "backward: it was called on this tape before; record a new tape");
  check_complete(options_.plan, *this);
  check_regions_end();
  backward_began_ = true;
  std::vector<Parameter*> without_grad;
  for (const auto& [p, v] : parameters_) {
    if (!p->grad) without_grad.push_back(p);
  }
  try {
    for (const Root& root : roots) begin_at(root);
    walk_backward();
  } catch (...) {
    free_saved();
    for (Parameter* p : without_grad) p->grad = {};
    throw;
  }
}

void Tape::begin_at(const Root& root) {
  Value& y = value(id_of(root.y));
  check(y.needs_grad, "backward: root ", y.spec, " (", producer_name(y),
        ") depends on nothing that needs a gradient; make a parameter trainable, or an input one "
        "that needs it");
  check(!y.grad, "backward: a value is a root twice");
  check(root.dy || y.spec.shape.numel() == 1, "backward: root ", y.spec,
        " has more than one element; give its gradient");
  check(!root.dy || root.dy.spec() == y.spec, "backward: a gradient of ", root.dy.spec(),
        " for a root of ", y.spec);
  check_stream(root.dy, "backward: the gradient of a root");
  y.grad = root.dy;
  if (root.dy) return;
  y.grad_is_one = true;
  y.grad = Tensor(y.spec, stream_, {.name = "root", .purpose = Purpose::gradient});
  launch(Fill{.out = y.grad, .value = 1}, stream_);
}

void Tape::walk_backward() {
  while (!open_regions_.empty()) close_region();
  free_unread();
  if (options_.offloader) options_.offloader->begin_backward();
  if (options_.survey) options_.survey->first_read.assign(values_.size(), -1);
  for (NodeId id = nodes_.next_id(); id-- > 0;) {
    if (options_.survey) survey_begin(options_.survey->backward);
    if (options_.offloader) options_.offloader->before_backward(id);
    backward_at_ = id;
    if (id > 0) prefetch_for(id - 1);
    differentiate(id);
    leave_regions(id);
  }
  if (options_.offloader) options_.offloader->end_backward();
  if (options_.survey) std::ranges::reverse(options_.survey->backward);
}

// Tells saved tensors that this node's backward will soon read them.
void Tape::prefetch_for(NodeId id) {
  const auto prefetch = [&](ValueId v) {
    if (value(v).saved) value(v).saved->prefetch();
  };
  const Node& n = node(id);
  std::ranges::for_each(n.saves, prefetch);
  for (RegionId r = n.region; r >= 0 && region(r).last == id; r = region(r).parent) {
    std::ranges::for_each(region(r).reads, prefetch);
  }
}

void Tape::differentiate(NodeId id) {
  Node& n = node(id);
  if (std::ranges::any_of(n.outputs, [&](ValueId v) { return bool(value(v).grad); })) {
    recompute_around(id);
    const TraceScope scope(stream_.trace(), "backward", *n.op, id);
    Backward backward(*this, n, id);
    n.op->backward(backward);
  }
  for (ValueId v : n.saves) drop_use(v, level(n.region, v));
  for (ValueId v : n.outputs) value(v).grad = {};
}

// The value's tensor: live, a parameter's, unpacked, or recomputed.
const Tensor& Tape::materialize(ValueId id, RegionId level) {
  Value& v = value(id);
  if (v.live) return v.live;
  if (!v.saved && v.parameter) return v.parameter->data;
  if (!v.saved) {
    recompute(level >= 0 ? level : outermost_region(v.producer));
    check(bool(v.live), "backward: recomputing a region did not yield value ", id, ", ", v.spec);
    return v.live;
  }
  if (options_.survey) options_.survey->first_read[id] = backward_at_;
  Tensor t = v.saved->unpack();
  const char* op = producer_name(v);
  check(bool(t), op, ": the hook's unpack() returned nothing for value ", id, ", ", v.spec);
  check(t.spec() == v.spec && &t.stream() == &stream_, op, ": the hook's unpack() returned ",
        t.spec(), " for value ", id, "; it must return ", v.spec, " on the tape's own stream");
  v.live = std::move(t);
  return v.live;
}

void Tape::free_saved() {
  for (Value& v : values_) {
    v.saved.reset();
    v.live = v.grad = {};
  }
}

Grad Tape::parameter_gradient(Value& v) {
  Parameter& p = *v.parameter;
  const bool accumulate = bool(p.grad);
  if (!accumulate) {
    const bool several = options_.micro_batches > 1 || v.contributions > 1;
    const DType type = several ? accumulator(v.spec.dtype) : v.spec.dtype;
    p.grad = Tensor({v.spec.shape, type}, stream_, {.name = p.name, .purpose = Purpose::gradient});
  }
  return {p.grad, accumulate};
}

// Memory for the gradient of a value, which the caller must write.
Grad Tape::gradient_of(ValueId id) {
  Value& v = value(id);
  if (!v.needs_grad) return {};
  if (v.parameter) return parameter_gradient(v);
  const Label label{.name = producer_name(v), .purpose = Purpose::gradient};
  const bool accumulate = bool(v.grad);
  if (!accumulate) {
    v.grad = Tensor(v.spec, stream_, label);
  } else if (!v.grad.sole_owner()) {  // shared with another value or the caller: copy it
    const Tensor own(v.spec, stream_, label);
    launch(Add{.out = own, .a = v.grad}, stream_);
    v.grad = own;
  }
  v.grad_is_one = false;
  return {v.grad, accumulate};
}

}  // namespace spool
