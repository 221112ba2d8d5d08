#include "spool/planner/sharding/named_op.h"

#include "spool/runtime/check.h"

namespace spool {
namespace {

std::string name_of_value(const Program& program, ValueId v) {
  const Value& value = program.values[v];
  if (value.parameter) return std::string(std::string_view(value.parameter->name));
  if (value.producer < 0) return "the input";
  return sentence("the output of ", program.producer_name(v));
}

}  // namespace

std::span<const int64_t> heads_of(const Notation& op) {
  for (const Term& term : op.inputs) {
    if (term.carries('h') && term.parts('h').size() == 3) return term.parts('h');
  }
  return {};
}

WholeOp named_op(const Program& program, NodeId n, const std::vector<WholeValue>& values) {
  WholeOp op = whole_op(program, n, values);
  const Node& node = program.nodes[n];
  for (const ValueId v : node.inputs) op.input_names.push_back(name_of_value(program, v));
  for (size_t i = 0; i < node.outputs.size(); ++i) op.output_names.emplace_back("its output");
  if (const auto parts = heads_of(op.notation); !parts.empty()) {
    op.counted['h'] = parts[0] == parts[1] ? "heads" : "key heads";
  }
  return op;
}

std::string node_in_words(const Program& program, NodeId n) {
  const Node& node = program.nodes[n];
  std::string words = sentence(node.op->name(), ' ', node.op->indices());
  for (const ValueId v : node.inputs) {
    if (!program.values[v].parameter) continue;
    words += sentence(" of ", program.values[v].parameter->name);
    break;
  }
  return words + sentence(" (node ", n, ')');
}

}  // namespace spool
