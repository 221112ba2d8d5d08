// What Forward and Backward, an op's views of its tape, do there.

#include "spool/autograd/op.h"

#include <algorithm>

#include "spool/autograd/tape.h"
#include "spool/kernels/elementwise.h"

namespace spool {

int Forward::chunks() const { return node_.chunks; }
int64_t Forward::first_row() const { return tape_.options_.first_row; }
View Forward::loss_scale() const { return tape_.options_.loss_scale; }
Stream& Forward::stream() { return tape_.stream_; }

View Forward::random() const {
  check(bool(tape_.options_.random), node_.op->name(),
        " draws random numbers, but the tape has no state for them (TapeOptions::random)");
  return tape_.options_.random;
}

void Forward::check_outputs(size_t asked_for) const {
  check(asked_for <= outputs_.size(), node_.op->name(), ": its forward() asks for ", asked_for,
        " outputs, but infer() gave ", outputs_.size());
}

Tensor Forward::scratch(const Spec& spec) {
  return {spec, tape_.stream_, {.name = node_.op->name(), .purpose = Purpose::workspace}};
}

Grad Forward::grad_input(int i) {
  check(tape_.forms_gradients_in_forward(), node_.op->name(),
        ": gradients exist in forward only if TapeOptions::backward_follows is set");
  const ValueId id = node_.inputs[i];
  ++tape_.value(id).contributions;  // later contributions are added to it
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

bool Backward::needs_grad(int i) const { return tape_.value(node_.inputs[i]).needs_grad; }

const Tensor& Backward::saved_tensor(int i) {
  check(node_.saves.has(i), node_.op->name(), ": its backward() reads saved tensor ", i,
        ", counted from 0, but saves() named ", node_.saves.size());
  return tape_.saved_tensor(node_, i);
}

View Backward::saved_at(int i) { return saved_tensor(i); }

View Backward::grad_output(int i) const {
  return node_.outputs.has(i) ? View(tape_.value(node_.outputs[i]).grad) : View();
}

bool Backward::grad_output_is_one(int i) const { return tape_.value(node_.outputs[i]).grad_is_one; }

Grad Backward::grad_input(int i) {
  return node_.inputs.has(i) ? tape_.gradient_of(node_.inputs[i]) : Grad();
}

Grad Backward::grad_input_over(int input, int output) {
  Value& x = tape_.value(node_.inputs[input]);
  const Tensor& dy = tape_.value(node_.outputs[output]).grad;
  const bool twice = std::ranges::count(node_.inputs, node_.inputs[input]) > 1;
  if (x.parameter || !x.needs_grad || x.grad || !dy.sole_owner() || dy.spec() != x.spec || twice) {
    return grad_input(input);
  }
  x.grad = dy;
  return {x.grad, false};
}

void Backward::receive(int input, const Tensor& gradient, bool is_one) {
  Value& x = tape_.value(node_.inputs[input]);
  if (!x.needs_grad) return;
  check(gradient.spec().shape == x.spec.shape, node_.op->name(), ": a gradient of ",
        gradient.spec(), " was passed to an input that is ", x.spec);
  if (!x.parameter && !x.grad) {
    x.grad = gradient;
    x.grad_is_one = is_one;
    return;
  }
  launch(Add{.out = grad_input(input), .a = gradient});
}

void Backward::pass(int input, int output) {
  const Value& y = tape_.value(node_.outputs[output]);
  receive(input, y.grad, y.grad_is_one);
}

void Backward::pass_saved(int input, int saved) { receive(input, saved_tensor(saved)); }

}  // namespace spool
