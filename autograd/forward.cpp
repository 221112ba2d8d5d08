#include "spool/autograd/forward.h"

#include "spool/autograd/engine/gradients.h"
#include "spool/autograd/program.h"
#include "spool/autograd/tape_options.h"

namespace spool {

Forward::Forward(const OpContext& context, NodeId id, const Few<Tensor>& inputs,
                 const Few<Tensor>& outputs, GradientCheck* check)
    : OpRun(context, id, check), inputs_(inputs), outputs_(outputs) {}

void Forward::check_outputs(size_t asked_for) const {
  check(asked_for <= outputs_.size(), node_.op->name(), ": its forward() asks for ", asked_for,
        " outputs, but infer() gave ", outputs_.size());
}

Grad Forward::grad_input(int i) {
  check(context_.options.forms_gradients_in_forward(), node_.op->name(),
        ": gradients exist in forward only if TapeOptions::backward_follows is set");
  return hand_out(i, context_.gradients.contribute_in_forward(node_.inputs[i]));
}

}  // namespace spool
