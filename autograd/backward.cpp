#include "spool/autograd/backward.h"

#include <algorithm>

#include "spool/autograd/checks/gradient_check.h"
#include "spool/autograd/engine/gradients.h"
#include "spool/autograd/engine/regions.h"
#include "spool/autograd/program.h"
#include "spool/autograd/tape_options.h"
#include "spool/kernels/elementwise.h"

namespace spool {

Backward::Backward(const OpContext& context, Regions& regions, NodeId id, GradientCheck* check)
    : OpRun(context, id, check), regions_(regions) {}

bool Backward::needs_grad(int i) const {
  return context_.program.values[node_.inputs[i]].needs_grad;
}

const Tensor& Backward::saved_tensor(int i) {
  check(node_.saves.has(i), node_.op->name(), ": its backward() reads saved tensor ", i,
        ", counted from 0, but saves() named ", node_.saves.size());
  return regions_.saved(id_, i);
}

View Backward::saved_at(int i) { return saved_tensor(i); }

View Backward::grad_output(int i) const {
  return node_.outputs.has(i) ? View(context_.gradients.of(node_.outputs[i])) : View();
}

bool Backward::grad_output_is_one(int i) const {
  return context_.gradients.is_one(node_.outputs[i]);
}

Grad Backward::grad_input(int i) {
  if (!node_.inputs.has(i)) return {};
  return hand_out(i, context_.gradients.contribute(node_.inputs[i]));
}

Grad Backward::grad_input_over(int input, int output) {
  const ValueId x = node_.inputs[input];
  const bool twice = std::ranges::count(node_.inputs, x) > 1;
  const Grad gradient = twice ? Grad() : context_.gradients.take_over(x, node_.outputs[output]);
  if (!gradient) return grad_input(input);
  if (check_) check_->share(input);
  return gradient;
}

void Backward::receive(int input, const Tensor& given, bool is_one) {
  const ValueId id = node_.inputs[input];
  const Value& x = context_.program.values[id];
  if (!x.needs_grad) return;
  check(given.numel() == x.spec.shape.numel(), node_.op->name(), ": a gradient of ", given.spec(),
        " was passed to an input that is ", x.spec);
  const Tensor gradient = given.reshape(x.spec.shape);
  if (context_.gradients.share(id, gradient, is_one)) {
    if (check_) check_->share(input);
  } else {
    launch(Add{.out = grad_input(input), .a = gradient});
  }
}

void Backward::pass(int input, int output) {
  const ValueId y = node_.outputs[output];
  receive(input, context_.gradients.of(y), context_.gradients.is_one(y));
}

void Backward::pass_part(int input, int output, Range elements) {
  const Tensor& gradient = context_.gradients.of(node_.outputs[output]);
  receive(input, gradient.reshape({gradient.numel()}).slice(elements));
}

void Backward::pass_saved(int input, int saved) { receive(input, saved_tensor(saved)); }

}  // namespace spool
