#include "spool/planner/sharding/part_rehearsal.h"

#include <algorithm>
#include <deque>

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/tape.h"
#include "spool/planner/rehearsal.h"

namespace spool {
namespace {

// Notes what parts would exchange.
class NotedExchange final : public PartExchange {
 public:
  void all_gather(char index, const View& own, const View&, Stream&) override {
    noted.push_back({index, static_cast<double>(own.nbytes())});
  }
  std::vector<JoinedBytes> noted = {};
};

// The first rank's part of an index that some axes cut.
PartOfIndex first_part(char index, int ranks, const WholeOp& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Term& term = op.notation.input(i);
    if (!term.carries(index)) continue;
    const int64_t extent = term.extent(index, op.inputs[i].spec.shape);
    return {.index = index, .range = {0, extent / ranks}, .extent = extent, .of = ranks};
  }
  fail(ErrorKind::invalid, "no input has the index ", index);
}

Place first_place(NodeId node, const WholeOp& op, const Strategy& s, const MeshAxes& mesh,
                  PartExchange& exchange) {
  Place place{.node = node, .exchange = &exchange};
  for (size_t a = 0; a < mesh.size(); ++a) {
    const char index = s.axes[a].index;
    if (index == ' ' || place.part(index)) continue;
    int ranks = 1;
    for (size_t b = a; b < mesh.size(); ++b) ranks *= s.axes[b].index == index ? mesh[b] : 1;
    place.parts.push_back(first_part(index, ranks, op));
  }
  for (size_t i = 0; i < op.inputs.size() && !place.parts.empty(); ++i) {
    if (op.notation.input(i).first() != place.parts[0].index) continue;
    place.leading = op.inputs[i].spec.shape[0];
    break;
  }
  return place;
}

Specs part_specs(const std::vector<WholeValue>& whole, const std::vector<Sharding>& shardings,
                 const MeshAxes& mesh) {
  Specs specs;
  for (size_t i = 0; i < whole.size(); ++i) {
    specs.push_back(local_spec(whole[i], shardings[i], mesh));
  }
  return specs;
}

// The part's operands on a tape: a parameter where the whole op has one.
struct PartOperands {
  std::deque<Parameter> parameters = {};
  std::vector<Var> values = {};
  std::vector<Operand> all = {};

  PartOperands(Tape& tape, const Program& program, const Node& node, const Specs& specs) {
    values.reserve(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      const Value& value = program.values[node.inputs[i]];
      const Tensor data(specs[i], tape.stream());
      if (value.parameter) {
        Parameter& p = parameters.emplace_back();
        p.data = data;
        p.trainable = value.needs_grad;
        all.emplace_back(p);
      } else {
        all.emplace_back(values.emplace_back(tape.input(data, value.needs_grad)));
      }
    }
  }
};

// Of a loss its own gradient is 1.
std::vector<Root> roots_of(const Few<Var>& outputs, const Program& program, const Node& node,
                           Stream& stream) {
  std::vector<Root> roots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool has_gradient =
        program.values[node.outputs[i]].needs_grad && node.op->differentiable(static_cast<int>(i));
    if (!has_gradient) continue;
    const Spec& spec = outputs[i].spec();
    roots.push_back({outputs[i], spec.shape.numel() == 1 ? Tensor() : Tensor(spec, stream)});
  }
  return roots;
}

}  // namespace

RehearsedPart rehearse_part(const Program& program, NodeId id, const WholeOp& op, const Strategy& s,
                            const MeshAxes& mesh, const Machine& machine) {
  const Node& node = program.nodes[id];
  const Specs inputs = part_specs(op.inputs, s.inputs, mesh);
  Specs outputs = part_specs(op.outputs, s.outputs, mesh);
  const Specs inferred = node.op->infer(inputs);
  for (size_t i = outputs.size(); i < inferred.size(); ++i) outputs.push_back(inferred[i]);
  RehearsedPart part;
  rehearse_totals(machine, [&](MetaStream& stream) {
    NotedExchange exchange;
    const auto part_op =
        std::make_shared<const PartOfOp>(node.op, outputs, first_place(id, op, s, mesh, exchange));
    const Tensor scale({Shape{1}, accumulator(inputs[0].dtype)}, stream);
    const Tensor random({Shape{4}, DType::i32}, stream);
    Tape tape(stream, {.backward_follows = true, .loss_scale = scale, .random = random});
    PartOperands operands(tape, program, node, inputs);
    const double begin = stream.now();
    const Few<Var> applied = tape.apply(part_op, operands.all);
    part.forward = std::exchange(exchange.noted, {});
    if (const auto roots = roots_of(applied, program, node, stream); !roots.empty()) {
      tape.backward(roots);
    }
    part.backward = std::exchange(exchange.noted, {});
    part.seconds = stream.now() - begin;
  });
  return part;
}

}  // namespace spool
