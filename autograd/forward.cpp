#include "spool/autograd/forward.h"

#include "spool/autograd/engine/gradients.h"
#include "spool/autograd/gradient_check.h"
#include "spool/autograd/program.h"
#include "spool/autograd/tape_options.h"

namespace spool {

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
int64_t Forward::first_element(const View& t) const { return context_.first_element(t, id_); }
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

Tensor Forward::scratch(const Spec& spec) { return context_.scratch(spec, id_); }

Grad Forward::grad_input(int i) {
  check(context_.options.forms_gradients_in_forward(), node_.op->name(),
        ": gradients exist in forward only if TapeOptions::backward_follows is set");
  const Grad gradient = context_.gradients.contribute_in_forward(node_.inputs[i]);
  if (check_ && gradient) check_->hand_out(i, gradient);
  return gradient;
}

}  // namespace spool
