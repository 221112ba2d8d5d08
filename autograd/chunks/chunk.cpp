#include "spool/autograd/chunks/chunk.h"

#include "spool/autograd/notation/part_of_op.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

TapeOptions options_of(const ChunkOfTape& chunk, const TapeOptions& whole, bool recording) {
  return {.recording = recording,
          .training = whole.training,
          .loss_scale = whole.loss_scale,
          .random = whole.random,
          .first_row = whole.first_row,
          .chunk = &chunk};
}

}  // namespace

Tape::Chunk::Chunk(Stream& stream, const TapeOptions& options, const Program& whole,
                   const ChunkedRegion& region, const ChunkOfTape& chunk, const Tensors& inputs,
                   bool recording)
    : region_(region), place_(chunk), tape_(stream, options_of(chunk, options, recording)) {
  add_inputs(whole, inputs);
  add_nodes(whole);
}

void Tape::Chunk::add_inputs(const Program& whole, const Tensors& inputs) {
  const Cut& cut = region_.cut;
  for (const ValueId v : cut.inputs) {
    const Value& value = whole.values[v];
    if (value.parameter) {
      tape_.resolve(*value.parameter);
      continue;
    }
    Spec spec = value.spec;
    if (cut.carries(v)) spec.shape = part(spec.shape, cut.extent, place_.rows.size());
    const bool needs_grad = value.needs_grad && tape_.options_.recording;
    const ValueId id = tape_.program_.values.add({.spec = spec, .needs_grad = needs_grad});
    const auto given = inputs.find(v);
    if (given == inputs.end()) continue;
    const Tensor& t = given->second;
    tape_.saving_.provide(id, cut.carries(v) ? part(t, cut.extent, place_.rows) : t);
  }
}

void Tape::Chunk::add_nodes(const Program& whole) {
  const RegionId all = tape_.regions_.open_by_hand();
  const Cut& cut = region_.cut;
  for (size_t i = 0; i < cut.nodes.size(); ++i) {
    const Node& node = whole.nodes[cut.nodes[i]];
    Few<ValueId> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(local(v));
    const int64_t chunks = ceil_div(node.chunks * place_.rows.size(), cut.extent);
    const NodeId id = tape_.program_.nodes.add({.op = part_of_node(i, whole),
                                                .inputs = inputs,
                                                .chunks = static_cast<int>(chunks),
                                                .region = all});
    tape_.add_outputs(id);
    if (tape_.options_.recording) tape_.regions_.note_saves(id);
  }
  tape_.regions_.close_all();
}

// The op of one of the cut's nodes, as this chunk applies it.
std::shared_ptr<const Op> Tape::Chunk::part_of_node(size_t number, const Program& whole) const {
  const Cut& cut = region_.cut;
  const NodeId id = cut.nodes[number];
  const Node& node = whole.nodes[id];
  Specs outputs;
  for (const ValueId v : node.outputs) {
    Spec spec = whole.values[v].spec;
    if (cut.carries(v)) spec.shape = part(spec.shape, cut.extent, place_.rows.size());
    outputs.push_back(spec);
  }
  const auto& [index, extent, leading] = cut.indices[number];
  const int64_t row = extent / cut.extent;
  const PartOfIndex rows{.index = index,
                         .range = {place_.rows.begin * row, place_.rows.end * row},
                         .extent = extent,
                         .number = place_.number,
                         .of = place_.of};
  const Place* const outer = node.op->place();
  const Place place{.node = id, .parts = {rows}, .leading = leading};
  return std::make_shared<PartOfOp>(node.op, outputs,
                                    outer ? outer->of_part(rows, leading) : place);
}

void Tape::Chunk::want(ValueId leaf, const Tensor& whole) {
  const Cut& cut = region_.cut;
  if (cut.carries(leaf)) tape_.runner_.place(local(leaf), part(whole, cut.extent, place_.rows));
  tape_.regions_.want(/*region=*/0, local(leaf));
}

void Tape::Chunk::compute() { tape_.regions_.recompute(/*region=*/0); }

Tensor Tape::Chunk::computed(ValueId leaf) { return *tape_.saving_.find(local(leaf)); }

void Tape::Chunk::begin_backward_at(ValueId leaf, const Tensor& gradient) {
  const Cut& cut = region_.cut;
  const bool is_carried = cut.carries(leaf);
  tape_.gradients_.begin_at(local(leaf),
                            is_carried ? part(gradient, cut.extent, place_.rows) : gradient);
}

void Tape::Chunk::place_gradient(ValueId input, const View& whole, bool accumulate) {
  const Cut& cut = region_.cut;
  const View own = cut.carries(input) ? part(whole, cut.extent, place_.rows) : whole;
  tape_.gradients_.place(local(input), {own, accumulate});
}

void Tape::Chunk::backward() { tape_.walk_backward(); }

bool Tape::Chunk::has_gradient(ValueId input) const {
  return tape_.gradients_.has_written(local(input));
}

}  // namespace spool
