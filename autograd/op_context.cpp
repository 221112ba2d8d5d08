#include "spool/autograd/op_context.h"

#include <algorithm>

#include "spool/autograd/checks/gradient_check.h"
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
NodeId OpRun::node() const { return context_.options.whole_node(id_); }
View OpRun::loss_scale() const { return context_.options.loss_scale; }

// On the tape of a chunk the shape of the whole, of which the tensor is a part, is looked up.
int64_t OpRun::first_element(const View& t) const {
  const TapeOptions& options = context_.options;
  const ChunkOfTape* const chunk = options.chunk;
  if (!chunk) return elements_before(t.shape(), options.first_row);
  const Program& whole = *chunk->whole;
  const Node& node = whole.nodes[options.whole_node(id_)];
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
