// The way back along the tape: who is differentiated, what is unpacked or made again, and where
// gradients go.

#include <algorithm>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/elementwise.h"

namespace spool {

void Tape::backward(const std::vector<Root>& roots) {
  check(options_.recording, "backward: this tape does not record");
  check(!spent_, "backward: this tape has gone backward before, and what it saved is gone");
  check_complete(options_.plan, *this);
  spent_ = true;
  std::vector<Parameter*> without_gradient;
  for (const auto& [p, v] : parameters_) {
    if (!p->grad) without_gradient.push_back(p);
  }
  try {
    for (const Root& root : roots) {
      check(&root.y.tape() == this, "backward: the root belongs to another tape");
      Value& y = value(root.y.id());
      check(!y.grad, "backward: a value is given as a root twice");
      check(root.dy || y.spec.shape.numel() == 1, "backward: a gradient is needed for ", y.spec,
            ", which has more than one element");
      check(!root.dy || root.dy.spec() == y.spec, "backward: a gradient of ", root.dy.spec(),
            " for ", y.spec);
      y.grad = root.dy;
      if (root.dy) continue;
      y.grad_is_one = true;
      y.grad = Tensor(y.spec, stream_, {.name = "root", .purpose = Purpose::gradient});
      launch(Fill{.out = y.grad, .value = 1}, stream_);
    }
    walk();
  } catch (...) {
    forget();
    for (Parameter* p : without_gradient) p->grad = {};
    throw;
  }
}

void Tape::walk() {
  while (!open_.empty()) close_region();
  if (options_.offloader) options_.offloader->begin_backward();
  if (options_.survey) options_.survey->first_read.assign(values_.size(), -1);
  for (auto id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
    if (options_.survey) note_begin(options_.survey->backward);
    if (options_.offloader) options_.offloader->before_backward(id);
    at_ = id;
    if (id > 0) announce(id - 1);
    differentiate(id);
    leave_regions(id);
  }
  if (options_.offloader) options_.offloader->end_backward();
  if (options_.survey) std::ranges::reverse(options_.survey->backward);
}

// Tells the hooks what comes next.
void Tape::announce(NodeId id) {
  const auto tell = [&](ValueId v) {
    if (value(v).saved) value(v).saved->prefetch();
  };
  const Node& n = node(id);
  std::ranges::for_each(n.saves, tell);
  for (int r = n.region; r >= 0 && region(r).last == id; r = region(r).parent) {
    std::ranges::for_each(region(r).reads, tell);
  }
}

void Tape::differentiate(NodeId id) {
  Node& n = node(id);
  if (std::ranges::any_of(n.outputs, [&](ValueId v) { return bool(value(v).grad); })) {
    replay_around(id);
    const TraceScope scope(stream_.trace(), "backward", *n.op, id);
    Backward backward(*this, n, id);
    n.op->backward(backward);
  }
  for (ValueId v : n.saves) drop_use(v, level(n.region, v));
  for (ValueId v : n.outputs) value(v).grad = {};
}

const Tensor& Tape::fetch(ValueId id, int level) {
  Value& v = value(id);
  if (v.live) return v.live;
  if (!v.saved && v.parameter) return v.parameter->data;
  if (!v.saved) {
    replay(level >= 0 ? level : outermost_region(v.producer));
    check(bool(v.live), "backward: replaying a region did not make value ", id, ", ", v.spec);
    return v.live;
  }
  if (options_.survey) options_.survey->first_read[static_cast<size_t>(id)] = at_;
  Tensor t = v.saved->unpack();
  const char* made_by = v.producer < 0 ? "input" : node(v.producer).op->name();
  check(bool(t), made_by, ": the hook's unpack() returned nothing for value ", id, ", ", v.spec);
  check(t.spec() == v.spec && &t.stream() == &stream_, made_by, ": the hook's unpack() returned ",
        t.spec(), " for value ", id, ", which was ", v.spec, " on the tape's own stream");
  v.live = std::move(t);
  return v.live;
}

void Tape::forget() {
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

// Where the gradient of a value goes.  Whoever asks must write there.
Grad Tape::gradient_of(ValueId id) {
  Value& v = value(id);
  if (!v.needs_grad) return {};
  if (v.parameter) return parameter_gradient(v);
  const Label label{.name = v.producer < 0 ? "input" : node(v.producer).op->name(),
                    .purpose = Purpose::gradient};
  const bool accumulate = bool(v.grad);
  if (!accumulate) {
    v.grad = Tensor(v.spec, stream_, label);
  } else if (!v.grad.sole_owner()) {  // shared with another value, or the caller's: part ways
    const Tensor own(v.spec, stream_, label);
    launch(Add{.out = own, .a = v.grad}, stream_);
    v.grad = own;
  }
  v.grad_is_one = false;
  return {v.grad, accumulate};
}

// ------------------------------------------------------------ what forward() and backward() see

int Forward::chunks() const { return node_.chunks; }
int64_t Forward::first_row() const { return tape_.options_.first_row; }
View Forward::loss_scale() const { return tape_.options_.loss_scale; }
Stream& Forward::stream() { return tape_.stream_; }

View Forward::random() const {
  check(bool(tape_.options_.random), node_.op->name(),
        " draws random numbers, and the tape was given none (TapeOptions::random)");
  return tape_.options_.random;
}

Tensor Forward::scratch(const Spec& spec) {
  return {spec, tape_.stream_, {.name = node_.op->name(), .purpose = Purpose::workspace}};
}

Grad Forward::grad_input(int i) {
  check(tape_.forms_gradients_in_forward(), node_.op->name(),
        ": a gradient was asked for in forward on a tape that was not promised a backward");
  const ValueId id = node_.inputs[static_cast<size_t>(i)];
  ++tape_.value(id).contributions;  // whoever comes after adds to it
  return tape_.gradient_of(id);
}

int Backward::chunks() const { return node_.chunks; }
int64_t Backward::first_row() const { return tape_.options_.first_row; }
View Backward::random() const { return tape_.options_.random; }
View Backward::loss_scale() const { return tape_.options_.loss_scale; }
Stream& Backward::stream() { return tape_.stream_; }

Tensor Backward::scratch(const Spec& spec) {
  return {spec, tape_.stream_, {.name = node_.op->name(), .purpose = Purpose::workspace}};
}

bool Backward::needs_grad(int i) const {
  return tape_.value(node_.inputs[static_cast<size_t>(i)]).needs_grad;
}

View Backward::saved_at(int i) {
  const auto at = static_cast<size_t>(i);
  return at < node_.saves.size() ? View(tape_.fetch_saved(node_, at)) : View();
}

View Backward::grad_output(int i) const {
  const auto at = static_cast<size_t>(i);
  return at < node_.outputs.size() ? View(tape_.value(node_.outputs[at]).grad) : View();
}

bool Backward::grad_output_is_one(int i) const {
  return tape_.value(node_.outputs[static_cast<size_t>(i)]).grad_is_one;
}

Grad Backward::grad_input(int i) {
  const auto at = static_cast<size_t>(i);
  return at < node_.inputs.size() ? tape_.gradient_of(node_.inputs[at]) : Grad();
}

Grad Backward::grad_input_over(int input, int output) {
  Value& x = tape_.value(node_.inputs[static_cast<size_t>(input)]);
  const Tensor& dy = tape_.value(node_.outputs[static_cast<size_t>(output)]).grad;
  const bool twice = std::ranges::count(node_.inputs, node_.inputs[static_cast<size_t>(input)]) > 1;
  if (x.parameter || !x.needs_grad || x.grad || !dy.sole_owner() || dy.spec() != x.spec || twice) {
    return grad_input(input);
  }
  x.grad = dy;
  return {x.grad, false};
}

void Backward::receive(int input, const Tensor& gradient) {
  Value& x = tape_.value(node_.inputs[static_cast<size_t>(input)]);
  if (!x.needs_grad) return;
  check(gradient.spec().shape == x.spec.shape, node_.op->name(), ": a gradient of ",
        gradient.spec(), " was passed to an input that is ", x.spec);
  if (!x.parameter && !x.grad) {
    x.grad = gradient;
    return;
  }
  launch(Add{.out = grad_input(input), .a = gradient});
}

void Backward::pass(int input, int output) {
  receive(input, tape_.value(node_.outputs[static_cast<size_t>(output)]).grad);
}

void Backward::pass_saved(int input, int saved) {
  receive(input, tape_.fetch_saved(node_, static_cast<size_t>(saved)));
}

}  // namespace spool
