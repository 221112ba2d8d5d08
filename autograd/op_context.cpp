#include "spool/autograd/op_context.h"

#include <algorithm>

#include "spool/autograd/checks/gradient_check.h"
#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/program.h"
#include "spool/autograd/tape_options.h"

namespace spool {
namespace {

// Elements of the batch before a tensor on a tape whose tensors begin with that row.
int64_t elements_before(const Shape& shape, int64_t first_row) {
  const int64_t rows = shape.rank() ? shape[0] : 1;
  return rows ? first_row * (shape.numel() / rows) : 0;
}

}  // namespace

OpRun::OpRun(const OpContext& context, NodeId id, GradientCheck* check)
    : context_(context), node_(context.program.nodes[id]), id_(id), check_(check) {}

int OpRun::chunks() const { return node_.chunks; }
const Place* OpRun::place() const { return node_.op->place(); }
NodeId OpRun::node() const { return place() ? place()->node : id_; }
View OpRun::loss_scale() const { return context_.options.loss_scale; }

int64_t OpRun::first_element(const View& t) const {
  const int64_t first_row = context_.options.first_row;
  const Place* const at = place();
  if (!at || at->leading == 0) return elements_before(t.shape(), first_row);
  const PartOfIndex& rows = at->parts.front();
  const int64_t row = t.numel() / std::max<int64_t>(rows.range.size(), 1);
  return first_row * (row * rows.extent / at->leading) + row * rows.range.begin;
}

View OpRun::random() const {
  check(bool(context_.options.random), node_.op->name(),
        " draws random numbers, but the tape has no state for them (TapeOptions::random)");
  return context_.options.random;
}

Tensor OpRun::scratch(const Spec& spec) {
  const char* const op = node_.op->name();
  return {spec, stream(), {.name = Name::never_freed(op), .purpose = Purpose::workspace}};
}

Grad OpRun::hand_out(int input, const Grad& gradient) {
  if (check_ && gradient) check_->hand_out(input, gradient);
  return gradient;
}

}  // namespace spool
