#include "spool/autograd/op_context.h"

#include <algorithm>

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

// On the tape of a chunk the shape of the whole, of which the tensor is a part, is looked up.
int64_t OpContext::first_element(const View& t, NodeId id) const {
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

Tensor OpContext::scratch(const Spec& spec, NodeId id) const {
  const char* const op = program.nodes[id].op->name();
  return {spec, stream, {.name = Name::never_freed(op), .purpose = Purpose::workspace}};
}

}  // namespace spool
