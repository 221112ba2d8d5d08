#include "spool/autograd/chunks/chunk_runner.h"

#include <algorithm>
#include <unordered_set>

#include "spool/autograd/chunks/chunk.h"
#include "spool/autograd/survey.h"
#include "spool/kernels/elementwise.h"

namespace spool {

const ChunkedRegion& ChunkRunner::prepare(RegionId id, NodeId last) {
  const TapeRegion& region = program_.regions[id];
  ChunkedRegion r{.first = region.first,
                  .last = last,
                  .chunks = region.chunks,
                  .cut = cut(program_, region.first, last)};
  check_chunks(r);
  check_leaves(r, region.leaves);
  std::ranges::copy_if(region.leaves, std::back_inserter(r.leaves),
                       [&](ValueId v) { return r.cut.has(program_.values[v].producer); });
  ValueId next = 0;
  for (const ValueId v : r.cut.inputs) r.local_id[v] = next++;
  for (const NodeId n : r.cut.nodes) {
    for (const ValueId v : program_.nodes[n].outputs) r.local_id[v] = next++;
  }
  return regions_[id] = std::move(r);
}

const ChunkedRegion& ChunkRunner::region(RegionId r) const { return regions_.at(r); }

void ChunkRunner::check_chunks(const ChunkedRegion& r) const {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorKind::invalid, "plan: the region of nodes ", r.first, " to ", r.last,
         " cannot run in chunks: ", why...);
  };
  if (!r.cut) refuse(r.cut.obstacle);
  if (r.cut.extent < r.chunks) {
    refuse("its index has an extent of ", r.cut.extent, ", which is less than its ", r.chunks,
           " chunks");
  }
  if (options_.loss_scale) return;
  for (const NodeId n : r.cut.nodes) {
    const Op& op = *program_.nodes[n].op;
    if (!op.needs_loss_scale()) continue;
    refuse(op.name(), " (node ", n,
           ") divides by the number of valid targets of all rows; give the tape a loss scale "
           "(TapeOptions::loss_scale)");
  }
}

void ChunkRunner::check_leaves(const ChunkedRegion& r, const std::vector<ValueId>& leaves) const {
  for (const ValueId v : leaves) {
    const NodeId producer = program_.values.contains(v) ? program_.values[v].producer : -1;
    check(r.first <= producer && producer <= r.last, "plan: value ", v,
          " is listed as a leaf of the region of nodes ", r.first, " to ", r.last,
          ", and is not computed in it");
  }
}

std::vector<ValueId> ChunkRunner::inputs_of(RegionId id, const std::vector<ValueId>& leaves) const {
  const ChunkedRegion& r = region(id);
  std::unordered_set<ValueId> needed(leaves.begin(), leaves.end());
  const auto is_needed = [&](ValueId v) { return needed.contains(v); };
  for (size_t i = r.cut.nodes.size(); i-- > 0;) {
    const Node& node = program_.nodes[r.cut.nodes[i]];
    if (!std::ranges::any_of(node.outputs, is_needed)) continue;
    needed.insert(node.inputs.begin(), node.inputs.end());
  }
  std::vector<ValueId> inputs;
  std::ranges::copy_if(r.cut.inputs, std::back_inserter(inputs),
                       [&](ValueId v) { return is_needed(v) && !program_.values[v].parameter; });
  return inputs;
}

void ChunkRunner::run(const ChunkedRegion& r, bool in_forward, const RunChunk& run_chunk) const {
  const std::vector<Range> pieces = split(r.cut.extent, r.chunks);
  repeat(options_.survey, stream_, pieces.size(), [&](size_t i) {
    run_chunk({.nodes = r.cut.nodes,
               .rows = pieces[i],
               .number = static_cast<int>(i),
               .of = static_cast<int>(pieces.size()),
               .in_forward = in_forward,
               .survey = options_.survey});
  });
}

Tensors ChunkRunner::compute(RegionId id, const std::vector<ValueId>& leaves, const Tensors& inputs,
                             bool in_forward) const {
  const ChunkedRegion& r = region(id);
  const auto is_sum = [&](ValueId v) { return !r.cut.carries(v); };
  Tensors out;
  for (const ValueId v : leaves) {
    Spec spec = program_.values[v].spec;
    if (is_sum(v)) spec.dtype = accumulator(spec.dtype);
    out[v] = Tensor(spec, stream_, {.name = Name::never_freed(program_.producer_name(v))});
    if (is_sum(v)) launch(Fill{.out = out[v]}, stream_);
  }
  run(r, in_forward, [&](const ChunkOfTape& rows) {
    Tape::Chunk chunk(stream_, options_, program_, r, rows, inputs, /*recording=*/false);
    for (const ValueId v : leaves) chunk.want(v, out[v]);
    chunk.compute();
    for (const ValueId v : leaves) {
      if (is_sum(v)) launch(Add{.out = add_to(out[v]), .a = chunk.computed(v)}, stream_);
    }
  });
  for (const ValueId v : leaves) {
    const Spec& spec = program_.values[v].spec;
    if (out[v].spec() == spec) continue;
    const Tensor sum = std::exchange(out[v], Tensor(spec, stream_, {.name = "sum of chunks"}));
    launch(Cast{.out = out[v], .in = sum}, stream_);
  }
  return out;
}

std::vector<ValueId> ChunkRunner::with_gradients(const ChunkedRegion& r) const {
  std::vector<ValueId> some;
  std::ranges::copy_if(r.leaves, std::back_inserter(some),
                       [&](ValueId v) { return bool(gradients_.of(v)); });
  return some;
}

bool ChunkRunner::has_gradient(RegionId id) const { return !with_gradients(region(id)).empty(); }

// The inputs that get a gradient from a leaf.
std::vector<ValueId> ChunkRunner::differentiated_inputs(const ChunkedRegion& r) const {
  const std::vector<ValueId> roots = with_gradients(r);
  std::unordered_set<ValueId> reached(roots.begin(), roots.end());
  for (size_t i = r.cut.nodes.size(); i-- > 0;) {
    const Node& node = program_.nodes[r.cut.nodes[i]];
    if (!std::ranges::any_of(node.outputs, [&](ValueId v) { return reached.contains(v); })) {
      continue;
    }
    for (const ValueId v : node.inputs) {
      if (program_.values[v].needs_grad) reached.insert(v);
    }
  }
  std::vector<ValueId> inputs;
  std::ranges::copy_if(r.cut.inputs, std::back_inserter(inputs),
                       [&](ValueId v) { return reached.contains(v); });
  return inputs;
}

ChunkRunner::Destination ChunkRunner::destination(const ChunkedRegion& r, ValueId v) const {
  Destination d{.value = v, .is_carried = r.cut.carries(v)};
  const Spec& spec = program_.values[v].spec;
  const DType type = gradients_.type(v);
  if (d.is_carried || accumulator(type) == type) {
    d.to = gradients_.contribute(v);
    return d;
  }
  d.sum = Tensor({spec.shape, accumulator(type)}, stream_,
                 {.name = "sum of chunks", .purpose = Purpose::gradient});
  d.to = d.sum;
  return d;
}

void ChunkRunner::round(const Destination& d) const {
  const Grad gradient = gradients_.contribute(d.value);
  if (!gradient.accumulate) return launch(Cast{.out = gradient.view, .in = d.sum}, stream_);
  const Tensor rounded(gradient.view.spec(), stream_,
                       {.name = "sum of chunks", .purpose = Purpose::gradient});
  launch(Cast{.out = rounded, .in = d.sum}, stream_);
  launch(Add{.out = gradient, .a = rounded}, stream_);
}

void ChunkRunner::backward(RegionId id, const Tensors& inputs) const {
  const ChunkedRegion& r = region(id);
  const std::vector<ValueId> roots = with_gradients(r);
  std::vector<Destination> destinations;
  for (const ValueId v : differentiated_inputs(r)) destinations.push_back(destination(r, v));
  run(r, /*in_forward=*/false, [&](const ChunkOfTape& rows) {
    Tape::Chunk chunk(stream_, options_, program_, r, rows, inputs, /*recording=*/true);
    for (const ValueId v : roots) chunk.begin_backward_at(v, gradients_.of(v));
    for (const Destination& d : destinations) {
      const bool is_begun = d.to.accumulate || (rows.number > 0 && !d.is_carried);
      chunk.place_gradient(d.value, d.to.view, is_begun);
    }
    chunk.backward();
    for (const Destination& d : destinations) {
      check(chunk.has_gradient(d.value), "the region of nodes ", r.first, " to ", r.last,
            ": none of its ops asks for the gradient of value ", d.value,
            ", which they read, and which is needed");
    }
  });
  for (const Destination& d : destinations) {
    if (d.sum) round(d);
  }
}

}  // namespace spool
