// What Forward and Backward, an op's views of its tape, do there.

#include "spool/autograd/op.h"

#include <algorithm>

#include "spool/autograd/gradients.h"
#include "spool/autograd/regions.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Of a tape whose tensors begin with that row of the batch.
int64_t elements_before(const Shape& shape, int64_t first_row) {
  const int64_t rows = shape.rank() ? shape[0] : 1;
  return rows ? first_row * (shape.numel() / rows) : 0;
}

// Of a chunk, with the shape of the whole of which the tensor is a part.
int64_t first_element_of(const View& t, NodeId id, const TapeOptions& options) {
  const ChunkOfTape* const chunk = options.chunk;
  if (!chunk) return elements_before(t.shape(), options.first_row);
  const Program& whole = *chunk->whole;
  const Node& node = whole.nodes[options.whole_node(id)];
  const int64_t row = t.numel() / std::max<int64_t>(chunk->rows.size(), 1);
  for (const Few<ValueId>* values : {&node.outputs, &node.inputs}) {
    for (const ValueId v : *values) {
      const Shape& shape = whole.values[v].spec.shape;
      if (shape.numel() != row * chunk->extent) continue;
      return elements_before(shape, options.first_row) + chunk->rows.begin * row;
    }
  }
  fail(ErrorKind::invalid, node.op->name(), ": ", t.spec(),
       " is not a part of any of its inputs and outputs");
}

}  // namespace

Forward::Forward(const OpContext& context, NodeId id, const Few<Tensor>& inputs,
                 const Few<Tensor>& outputs, GradientCheck* check)
    : context_(context),
      node_(context.program.nodes[id]),
      id_(id),
      inputs_(inputs),
      outputs_(outputs),
      check_(check) {}

int Forward::chunks() const { return node_.chunks; }
NodeId Forward::node() const { return context_.options.whole_node(id_); }
int64_t Forward::first_element(const View& t) const {
  return first_element_of(t, id_, context_.options);
}
View Forward::loss_scale() const { return context_.options.loss_scale; }

View Forward::random() const {
  check(bool(context_.options.random), node_.op->name(),
        " draws random numbers, but the tape has no state for them (TapeOptions::random)");
  return context_.options.random;
}

void Forward::check_outputs(size_t asked_for) const {
  check(asked_for <= outputs_.size(), node_.op->name(), ": its forward() asks for ", asked_for,
        " outputs, but infer() gave ", outputs_.size());
}

Tensor Forward::scratch(const Spec& spec) {
  return {
      spec, stream(), {.name = Name::never_freed(node_.op->name()), .purpose = Purpose::workspace}};
}

Grad Forward::grad_input(int i) {
  check(context_.options.forms_gradients_in_forward(), node_.op->name(),
        ": gradients exist in forward only if TapeOptions::backward_follows is set");
  const Grad gradient = context_.gradients.contribute_in_forward(node_.inputs[i]);
  if (check_ && gradient) check_->hand_out(i, gradient);
  return gradient;
}

Backward::Backward(const OpContext& context, Regions& regions, NodeId id, GradientCheck* check)
    : context_(context),
      regions_(regions),
      node_(context.program.nodes[id]),
      id_(id),
      check_(check) {}

int Backward::chunks() const { return node_.chunks; }
NodeId Backward::node() const { return context_.options.whole_node(id_); }
int64_t Backward::first_element(const View& t) const {
  return first_element_of(t, id_, context_.options);
}
View Backward::random() const { return context_.options.random; }
View Backward::loss_scale() const { return context_.options.loss_scale; }

Tensor Backward::scratch(const Spec& spec) {
  return {
      spec, stream(), {.name = Name::never_freed(node_.op->name()), .purpose = Purpose::workspace}};
}

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
  const Grad gradient = context_.gradients.contribute(node_.inputs[i]);
  if (check_ && gradient) check_->hand_out(i, gradient);
  return gradient;
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
