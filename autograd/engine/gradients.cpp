#include "spool/autograd/engine/gradients.h"

#include <utility>

#include "spool/autograd/homes.h"
#include "spool/kernels/elementwise.h"

namespace spool {

namespace {

// What earlier micro-batches have added up, if that is on the host.
void bring_sum(const Parameter& p) {
  if (!p.grad && p.homes) [[unlikely]]
    p.homes->need_gradient(p);
}

}  // namespace

void Gradients::grow() { gradients_.resize(program_.values.size()); }

void Gradients::expect(ValueId v, int contributions) {
  undo_log_.push_back({.value = v, .contributions = contributions});
  at(v).contributions += contributions;
}

Grad Gradients::contribute_in_forward(ValueId v) {
  const Parameter* const p = program_.values[v].trains;
  if (p) bring_sum(*p);
  const bool existed = bool(p ? p->grad : of(v));
  expect(v, 1);
  undo_log_.back().allocated = !existed;
  return contribute(v);
}

void Gradients::undo_op() {
  for (const auto& [v, contributions, allocated] : undo_log_) {
    at(v).contributions -= contributions;
    if (!allocated) continue;
    free(v);
    if (Parameter* const p = program_.values[v].trains) {
      p->grad = {};
      std::erase(begun_, p);
    }
  }
  undo_log_.clear();
}

const Tensor& Gradients::of(ValueId v) const {
  static const Tensor absent;
  return gradients_.contains(v) ? gradients_[v].tensor : absent;
}

void Gradients::begin_at(ValueId v, const Tensor& given) {
  Gradient& gradient = at(v);
  check(!gradient.tensor, "backward: a value is a root twice");
  gradient.tensor = given;
  if (given) return;
  gradient.is_one = true;
  const Label label{.name = "root", .purpose = Purpose::gradient};
  gradient.tensor = Tensor(program_.values[v].spec, stream_, label);
  launch(Fill{.out = gradient.tensor, .value = 1}, stream_);
}

Grad Gradients::contribute(ValueId id) {
  const Value& value = program_.values[id];
  if (!value.needs_grad) return {};
  if (is_placed(id)) {
    Place& place = places_[id];
    place.written = true;
    return {place.destination.view, std::exchange(place.destination.accumulate, true)};
  }
  Gradient& gradient = at(id);
  if (value.trains) return contribute_to(value, gradient.contributions);
  const Label label{.name = Name::never_freed(program_.producer_name(id)),
                    .purpose = Purpose::gradient};
  const bool accumulate = bool(gradient.tensor);
  if (!accumulate) {
    gradient.tensor = Tensor(value.spec, stream_, label);
  } else if (!gradient.tensor.sole_owner()) {  // shared with another value or the caller: copy it
    const Tensor own(value.spec, stream_, label);
    launch(Add{.out = own, .a = gradient.tensor}, stream_);
    gradient.tensor = own;
  }
  gradient.is_one = false;
  return {gradient.tensor, accumulate};
}

DType Gradients::type(ValueId v) const {
  const Value& value = program_.values[v];
  if (!value.trains) return value.spec.dtype;
  return type(*value.trains, gradients_.contains(v) ? gradients_[v].contributions : 0);
}

DType Gradients::type(const Parameter& p, int contributions) const {
  bring_sum(p);
  if (p.grad) return p.grad.dtype();
  const bool several = micro_batches_ > 1 || contributions > 1;
  return several ? accumulator(p.spec().dtype) : p.spec().dtype;
}

Grad Gradients::contribute_to(const Value& value, int contributions) {
  Parameter& p = *value.trains;
  bring_sum(p);
  const bool accumulate = bool(p.grad);
  if (!accumulate) {
    const Spec spec{value.spec.shape, type(p, contributions)};
    p.grad = Tensor(spec, stream_, {.name = p.name, .purpose = Purpose::gradient});
    begun_.push_back(&p);
  }
  return {p.grad, accumulate};
}

Grad Gradients::take_over(ValueId id, ValueId from) {
  const Value& value = program_.values[id];
  const Tensor& tensor = of(from);
  if (value.trains || !value.needs_grad || is_placed(id) || of(id) || !tensor.sole_owner() ||
      tensor.spec() != value.spec) {
    return {};
  }
  at(id).tensor = tensor;
  return {tensor, /*add=*/false};
}

bool Gradients::share(ValueId id, const Tensor& contribution, bool is_one) {
  if (program_.values[id].trains || is_placed(id) || of(id)) return false;
  Gradient& gradient = at(id);
  gradient.tensor = contribution;
  gradient.is_one = is_one;
  return true;
}

void Gradients::place(ValueId v, const Grad& destination) {
  if (!places_.contains(v)) places_.resize(static_cast<size_t>(v) + 1);
  places_[v] = {.destination = destination};
}

void Gradients::free(ValueId v) {
  if (gradients_.contains(v)) gradients_[v].tensor = {};
}

void Gradients::free_all() {
  for (Gradient& gradient : gradients_) gradient.tensor = {};
  for (Parameter* p : std::exchange(begun_, {})) p->grad = {};
}

void Gradients::forget_from(ValueId first) {
  if (gradients_.contains(first)) gradients_.resize(static_cast<size_t>(first));
}

}  // namespace spool
