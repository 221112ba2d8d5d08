// Regions in backward: recomputes the values that backward reads and that were not saved.
//
// A region is recomputed before the first read of a value at its level (see regions.h).  Of its
// nodes, only those are recomputed whose outputs backward or another recomputed node reads.

#include <algorithm>
#include <utility>

#include "spool/autograd/engine/regions.h"
#include "spool/autograd/survey.h"

namespace spool {

// Outputs that only the nodes being recomputed read; indexed by value, from `base` on.
struct Regions::Buffers {
  ValueId base;
  std::vector<int> readers;  // nodes that read the value and have not been recomputed yet
  std::vector<Tensor> tensors;

  size_t at(ValueId v) const { return static_cast<size_t>(v - base); }
};

void Regions::prefetch_for(NodeId id) {
  const auto prefetch = [&](ValueId v) { saving_.prefetch(v); };
  const RegionId chunked = chunked_ending_at(id);
  if (chunked >= 0) {
    for (const NodeId inner : chunks_.region(chunked).cut.nodes) {
      std::ranges::for_each(program_.nodes[inner].saves, prefetch);
    }
    std::ranges::for_each(states_[chunked].reads, prefetch);
  }
  const Node& n = program_.nodes[id];
  std::ranges::for_each(n.saves, prefetch);
  for (RegionId r = n.region; r >= 0 && program_.regions[r].last == id; r = parent(r)) {
    std::ranges::for_each(states_[r].reads, prefetch);
  }
}

void Regions::gather_for(NodeId reader, int ahead) {
  constexpr NodeId max_nodes = 64;
  NodeId before = -1;  // of a region all values lead to the same
  for (const NodeId last = reader - max_nodes; reader >= 0 && reader > last; --reader) {
    const Node& n = program_.nodes[reader];
    for (const ValueId v : n.saves) {
      const NodeId producer = program_.values[v].producer;
      if (producer < 0 || !program_.nodes[producer].op->gathers()) continue;
      const RegionId missing = region_of_missing(v, level(n.region, v));
      if (missing < 0 || states_[missing].recomputed) continue;
      const NodeId gather = first_gather(missing).value_or(producer);
      if (gather == before) continue;
      before = gather;
      if (runner_.begin(*program_.nodes[gather].op) || --ahead == 0) return;
    }
  }
}

// The first node that gathers when the region is recomputed.
std::optional<NodeId> Regions::first_gather(RegionId r) const {
  const std::vector<ValueId>& uses = states_[r].uses;
  for (NodeId id = program_.regions[r].first; id <= program_.regions[r].last; ++id) {
    const Node& n = program_.nodes[id];
    const bool is_read = std::ranges::find(uses, n.outputs.front()) != uses.end();
    if (n.op->gathers() && is_read) return id;
  }
  return {};
}

void Regions::recompute_for(NodeId id) {
  const Node& n = program_.nodes[id];
  reader_ = id;
  for (const ValueId v : n.saves) {
    const RegionId r = level(n.region, v);
    if (r >= 0 && !program_.regions[r].one_op && !states_[r].recomputed) recompute(r);
  }
}

const Tensor& Regions::saved(NodeId id, int i) {
  const Node& n = program_.nodes[id];
  return read(n.saves[i], level(n.region, n.saves[i]));
}

// The value's tensor, unpacked or recomputed if it is not live.
const Tensor& Regions::read(ValueId v, RegionId level) {
  if (options_.survey) options_.survey->add_read(v);
  if (const Tensor* const found = saving_.find(v)) return *found;
  recompute(level >= 0 ? level : outermost_region(program_.values[v].producer));
  const Tensor* const found = saving_.find(v);
  check(found, "backward: recomputing a region did not yield value ", v, ", ",
        program_.values[v].spec);
  return *found;
}

// Recomputes a region, after the regions that recompute what it reads.  These may be as many as the
// tape has nodes, hence a list instead of recursion, the innermost last.
void Regions::recompute(RegionId index) {
  struct Waiting {
    RegionId region;
    size_t next = 0;  // of its reads
  };
  std::vector<Waiting> waiting{{index}};
  while (!waiting.empty()) {
    const RegionId r = waiting.back().region;
    const size_t next = waiting.back().next;
    if (next == states_[r].reads.size()) {
      recompute_nodes(r);
      waiting.pop_back();
      continue;
    }
    const ValueId v = states_[r].reads[next];
    const RegionId at = level(parent(r), v);
    const RegionId before = region_of_missing(v, at);
    if (before >= 0 && !states_[before].recomputed) {
      waiting.push_back({before});
    } else {
      read(v, at);
      ++waiting.back().next;
    }
  }
}

// The region to recompute before the value can be read at this level; -1: none.
RegionId Regions::region_of_missing(ValueId v, RegionId level) const {
  const Value& value = program_.values[v];
  if (value.parameter || saving_.exists(v)) return -1;
  return level >= 0 ? level : outermost_region(value.producer);
}

// Recomputes the nodes of a region whose reads are live.
void Regions::recompute_nodes(RegionId index) {
  if (program_.regions[index].chunks > 1) return recompute_leaves(index);
  const NodeId first = program_.regions[index].first, last = program_.regions[index].last;
  State& r = states_[index];
  r.recomputed = true;
  for (const ValueId v : std::exchange(r.uses, {})) saving_.add_reads(v, 1);
  for (const ValueId v : std::exchange(r.dropped_uses, {})) saving_.add_reads(v, -1);

  const IdTable<NodeId, Node>& nodes = program_.nodes;
  const ValueId base = nodes[first].outputs.front();
  const auto count = static_cast<size_t>(*std::prev(nodes[last].outputs.end()) + 1 - base);
  Buffers buffers{
      .base = base, .readers = std::vector<int>(count), .tensors = std::vector<Tensor>(count)};
  count_readers(index, buffers);
  for (NodeId id = first; id <= last; ++id) {
    if (program_.chunked_region(id) < 0 && is_any_needed(nodes[id].outputs, buffers)) {
      recompute_node(id, index, buffers);
      if (nodes[id].op->gathers()) gather_after(id, index, buffers);
    }
    const RegionId chunked = chunked_ending_at(id);
    if (chunked >= 0) recompute_chunks(chunked, index, buffers);
  }
  const RegionId around = parent(index);
  for (const ValueId v : std::exchange(r.reads, {})) drop_use(v, level(around, v));
}

// The same of what is recomputed next in the region, or read behind it.
void Regions::gather_after(NodeId gather, RegionId index, const Buffers& buffers) {
  for (NodeId id = gather + 1; id <= program_.regions[index].last; ++id) {
    const Node& n = program_.nodes[id];
    if (!n.op->gathers() || !is_any_needed(n.outputs, buffers)) continue;
    runner_.begin(*n.op);
    return;
  }
  gather_for(reader_, /*ahead=*/1);
}

bool Regions::is_needed(ValueId v, const Buffers& buffers) const {
  return saving_.is_missing(v) || buffers.readers[buffers.at(v)] > 0;
}

bool Regions::is_any_needed(const Few<ValueId>& outputs, const Buffers& buffers) const {
  return std::ranges::any_of(outputs, [&](ValueId v) { return is_needed(v, buffers); });
}

std::vector<ValueId> Regions::needed_leaves(RegionId chunked, const Buffers& buffers) const {
  std::vector<ValueId> needed;
  std::ranges::copy_if(chunks_.region(chunked).leaves, std::back_inserter(needed),
                       [&](ValueId v) { return is_needed(v, buffers); });
  return needed;
}

// Counts, for each value of a region that has to be recomputed, the nodes that will read it.
void Regions::count_readers(RegionId index, Buffers& buffers) const {
  const auto read_by_one = [&](ValueId v) {
    if (program_.is_inside(index, v) && !saving_.exists(v)) ++buffers.readers[buffers.at(v)];
  };
  for (NodeId id = program_.regions[index].last; id >= program_.regions[index].first; --id) {
    const RegionId chunked = chunked_ending_at(id);
    if (chunked >= 0) {
      std::ranges::for_each(chunks_.inputs_of(chunked, needed_leaves(chunked, buffers)),
                            read_by_one);
    }
    const Node& n = program_.nodes[id];
    if (program_.chunked_region(id) >= 0 || !is_any_needed(n.outputs, buffers)) continue;
    std::ranges::for_each(n.inputs, read_by_one);
  }
}

// The tensor of a value that a region reads while it is recomputed.
const Tensor& Regions::take(ValueId v, RegionId index, const Buffers& buffers) {
  const bool is_inside = program_.is_inside(index, v);
  if (is_inside && buffers.tensors[buffers.at(v)]) return buffers.tensors[buffers.at(v)];
  return read(v, level(index, v));
}

// Keeps a value that has been recomputed if it is needed.
void Regions::store(ValueId v, const Tensor& t, Buffers& buffers) {
  if (saving_.is_missing(v)) {
    saving_.put(v, t);
  } else if (buffers.readers[buffers.at(v)] > 0) {
    buffers.tensors[buffers.at(v)] = t;
  }
}

// Counts one reader less; after the last the value is freed.
void Regions::release(ValueId v, RegionId index, Buffers& buffers) const {
  if (!program_.is_inside(index, v) || !buffers.tensors[buffers.at(v)]) return;
  if (--buffers.readers[buffers.at(v)] == 0) buffers.tensors[buffers.at(v)] = {};
}

// Runs the op as in forward, and keeps those of its outputs that are needed.
void Regions::recompute_node(NodeId id, RegionId index, Buffers& buffers) {
  const Node& n = program_.nodes[id];
  Few<Tensor> in;
  for (const ValueId v : n.inputs) in.push_back(take(v, index, buffers));
  const Few<Tensor> out = runner_.recompute(id, in);
  for (size_t i = 0; i < out.size(); ++i) store(n.outputs[i], out[i], buffers);
  for (const ValueId v : n.inputs) release(v, index, buffers);
}

// The same for a region in chunks; all, some or none of its leaves may be needed.
void Regions::recompute_chunks(RegionId chunked, RegionId around, Buffers& buffers) {
  const std::vector<ValueId> leaves = needed_leaves(chunked, buffers);
  if (leaves.empty()) return;
  const std::vector<ValueId> inputs = chunks_.inputs_of(chunked, leaves);
  Tensors in;
  for (const ValueId v : inputs) in[v] = take(v, around, buffers);
  for (const auto& [v, t] : chunks_.compute(chunked, leaves, in, /*in_forward=*/false)) {
    store(v, t, buffers);
  }
  in.clear();
  for (const ValueId v : inputs) release(v, around, buffers);
}

// Recomputes the leaves of a region in chunks that others read.  What the region reads stays, for
// its backward.
void Regions::recompute_leaves(RegionId chunked) {
  std::vector<ValueId> leaves;
  std::ranges::copy_if(chunks_.region(chunked).leaves, std::back_inserter(leaves),
                       [&](ValueId v) { return saving_.is_missing(v); });
  Tensors in;
  for (const ValueId v : chunks_.inputs_of(chunked, leaves)) {
    in[v] = read(v, level(parent(chunked), v));
  }
  for (const auto& [v, t] : chunks_.compute(chunked, leaves, in, /*in_forward=*/false)) {
    saving_.put(v, t);
  }
}

RegionId Regions::chunked_ending_at(NodeId id) const {
  const auto last = [&](RegionId r) { return program_.regions[r].last; };
  const auto at = std::ranges::lower_bound(chunked_, id, {}, last);
  return at != chunked_.end() && last(*at) == id ? *at : -1;
}

Tensors Regions::read_inputs(RegionId r) {
  Tensors in;
  const auto add = [&](ValueId v, RegionId at) {
    if (!program_.values[v].parameter) in[v] = read(v, at);
  };
  for (const ValueId v : states_[r].reads) add(v, level(parent(r), v));
  for (const NodeId n : chunks_.region(r).cut.nodes) {
    for (const ValueId v : program_.nodes[n].saves) {
      const RegionId at = level(r, v);
      if (at != r) add(v, at);
    }
  }
  return in;
}

void Regions::leave_chunked(RegionId r) {
  for (const NodeId n : chunks_.region(r).cut.nodes) release_saved(n);
  State& state = states_[r];
  state.recomputed = true;
  for (const ValueId v : std::exchange(state.reads, {})) drop_use(v, level(parent(r), v));
  state.uses.clear();
  state.dropped_uses.clear();
}

RegionId Regions::outermost_region(NodeId id) const {
  RegionId r = program_.nodes[id].region;
  while (parent(r) >= 0) r = parent(r);
  return r;
}

void Regions::release_saved(NodeId id) {
  const Node& n = program_.nodes[id];
  for (const ValueId v : n.saves) drop_use(v, level(n.region, v));
}

void Regions::leave_at(NodeId id) {
  for (RegionId i = program_.nodes[id].region; i >= 0 && program_.regions[i].first == id;
       i = parent(i)) {
    State& r = states_[i];
    if (std::exchange(r.recomputed, true)) continue;
    for (const ValueId v : std::exchange(r.reads, {})) drop_use(v, level(parent(i), v));
    r.uses.clear();
    r.dropped_uses.clear();
  }
}

}  // namespace spool
