// Regions in backward: recomputes the values that backward reads and that were not saved.
//
// A region is recomputed before the first read of a value at its level (see regions.h).  Of its
// nodes, only those are recomputed whose outputs backward or another recomputed node reads.

#include <algorithm>
#include <utility>

#include "spool/autograd/regions.h"
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
  const Node& n = program_.nodes[id];
  std::ranges::for_each(n.saves, prefetch);
  for (RegionId r = n.region; r >= 0 && program_.regions[r].last == id; r = parent(r)) {
    std::ranges::for_each(states_[r].reads, prefetch);
  }
}

void Regions::recompute_for(NodeId id) {
  const Node& n = program_.nodes[id];
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

// Recomputes a region, and first those that what it reads is recomputed with.  These may be as many
// as the tape has nodes, hence the list, the innermost last.
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
  const auto [first, last, around, one_op] = program_.regions[index];
  State& r = states_[index];
  r.recomputed = true;
  for (const ValueId v : std::exchange(r.uses, {})) saving_.add_reads(v, 1);
  for (const ValueId v : std::exchange(r.dropped_uses, {})) saving_.add_reads(v, -1);

  const IdTable<NodeId, Node>& nodes = program_.nodes;
  const ValueId base = nodes[first].outputs.front();
  const auto count = static_cast<size_t>(*std::prev(nodes[last].outputs.end()) + 1 - base);
  Buffers buffers{
      .base = base, .readers = std::vector<int>(count), .tensors = std::vector<Tensor>(count)};
  const auto is_needed = [&](ValueId v) {
    return saving_.is_missing(v) || buffers.readers[buffers.at(v)] > 0;
  };
  for (NodeId id = last; id >= first; --id) {
    if (!std::ranges::any_of(nodes[id].outputs, is_needed)) continue;
    for (const ValueId v : nodes[id].inputs) {
      if (program_.is_inside(index, v) && !saving_.exists(v)) ++buffers.readers[buffers.at(v)];
    }
  }
  for (NodeId id = first; id <= last; ++id) {
    if (std::ranges::any_of(nodes[id].outputs, is_needed)) recompute_node(id, index, buffers);
  }
  for (const ValueId v : std::exchange(r.reads, {})) drop_use(v, level(around, v));
}

// Runs the op as in forward, and keeps those of its outputs that are needed.
void Regions::recompute_node(NodeId id, RegionId index, Buffers& buffers) {
  const Node& n = program_.nodes[id];
  const auto is_buffered = [&](ValueId v) {
    return program_.is_inside(index, v) && bool(buffers.tensors[buffers.at(v)]);
  };
  Few<Tensor> in;
  for (const ValueId v : n.inputs) {
    in.push_back(is_buffered(v) ? buffers.tensors[buffers.at(v)] : read(v, level(index, v)));
  }
  const Few<Tensor> out = runner_.recompute(id, in);
  for (size_t i = 0; i < out.size(); ++i) {
    const ValueId v = n.outputs[i];
    if (saving_.is_missing(v)) {
      saving_.put(v, out[i]);
    } else if (buffers.readers[buffers.at(v)] > 0) {
      buffers.tensors[buffers.at(v)] = out[i];
    }
  }
  for (const ValueId v : n.inputs) {
    if (is_buffered(v) && --buffers.readers[buffers.at(v)] == 0) {
      buffers.tensors[buffers.at(v)] = {};
    }
  }
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
