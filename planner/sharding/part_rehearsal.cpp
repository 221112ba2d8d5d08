#include "spool/planner/sharding/part_rehearsal.h"

#include <deque>

#include "spool/autograd/sharding/conversions.h"
#include "spool/autograd/sharding/part_place.h"
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
  const std::vector<int> first(mesh.size(), 0);  // rank
  RehearsedPart part;
  rehearse_totals(machine, [&](MetaStream& stream) {
    NotedExchange exchange;
    const auto part_op = std::make_shared<const PartOfOp>(
        node.op, outputs, part_place(id, op, s, mesh, first, &exchange));
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

std::vector<JoinedGather> gathers_of(const JoinedBytes& joined, const Strategy& s,
                                     const MeshAxes& mesh, const std::vector<Link>& links) {
  std::vector<JoinedGather> all;
  double bytes = joined.bytes;
  for (size_t a = mesh.size(); a-- > 0;) {
    if (s.axes[a].index != joined.index) continue;
    JoinedGather& gather = all.emplace_back();
    gather.axis = static_cast<int>(a);
    gather.bytes = sent_bytes(Collective::all_gather, bytes, mesh[a]);
    if (!links.empty() && gather.bytes > 0) {
      gather.seconds = links[a].seconds + gather.bytes / links[a].bytes_per_second;
    }
    bytes *= mesh[a];
  }
  return all;
}

double seconds_of_joined(const RehearsedPart& part, const Strategy& s, const MeshAxes& mesh,
                         const std::vector<Link>& links) {
  double seconds = 0;
  for (const auto* joined : {&part.forward, &part.backward}) {
    for (const JoinedBytes& j : *joined) {
      for (const JoinedGather& g : gathers_of(j, s, mesh, links)) seconds += g.seconds;
    }
  }
  return seconds;
}

}  // namespace spool
