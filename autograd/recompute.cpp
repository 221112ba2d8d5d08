// Regions in backward: recomputes the values that backward reads and that were not saved.
//
// A region is recomputed before the first read of a value at its level (see regions.cpp).  Of its
// nodes, only those are recomputed whose outputs backward or another recomputed node reads.

#include <algorithm>

#include "spool/autograd/tape.h"

namespace spool {

// Outputs that only the nodes being recomputed read; indexed by value, from `base` on.
struct Tape::RegionBuffers {
  ValueId base;
  std::vector<int> readers;  // nodes that read the value and have not been recomputed yet
  std::vector<Tensor> tensors;

  size_t at(ValueId v) const { return static_cast<size_t>(v - base); }
};

// Backward will read it, and it is neither saved nor live.
bool Tape::is_missing(ValueId id) const {
  const Value& v = values_[id];
  return v.uses > 0 && !v.saved && !v.live;
}

// Recomputes a region, and first those that what it reads is recomputed with.  These may be as many
// as the tape has nodes, hence the list, the innermost last.
void Tape::recompute(RegionId index) {
  struct Waiting {
    RegionId region;
    size_t next = 0;  // of its reads
  };
  std::vector<Waiting> waiting{{index}};
  while (!waiting.empty()) {
    const RegionId r = waiting.back().region;
    const size_t next = waiting.back().next;
    if (next == region(r).reads.size()) {
      recompute_nodes(r);
      waiting.pop_back();
      continue;
    }
    const ValueId v = region(r).reads[next];
    const RegionId at = level(region(r).parent, v);
    const RegionId before = region_of_missing(v, at);
    if (before >= 0 && !region(before).recomputed) {
      waiting.push_back({before});
    } else {
      materialize(v, at);
      ++waiting.back().next;
    }
  }
}

// The region to recompute before the value can be read at this level; -1: none.
RegionId Tape::region_of_missing(ValueId id, RegionId level) const {
  const Value& v = values_[id];
  if (v.live || v.saved || v.parameter) return -1;
  return level >= 0 ? level : outermost_region(v.producer);
}

// Recomputes the nodes of a region whose reads are live.
void Tape::recompute_nodes(RegionId index) {
  TapeRegion& r = region(index);
  r.recomputed = true;
  for (ValueId v : r.uses) ++value(v).uses;
  for (ValueId v : r.dropped_uses) --value(v).uses;
  r.uses.clear();
  r.dropped_uses.clear();

  const ValueId base = node(r.first).outputs.front();
  const auto count = static_cast<size_t>(*std::prev(node(r.last).outputs.end()) + 1 - base);
  RegionBuffers buffers{
      .base = base, .readers = std::vector<int>(count), .tensors = std::vector<Tensor>(count)};
  const auto is_needed = [&](ValueId v) {
    return is_missing(v) || buffers.readers[buffers.at(v)] > 0;
  };
  for (NodeId id = r.last; id >= r.first; --id) {
    if (!std::ranges::any_of(node(id).outputs, is_needed)) continue;
    for (ValueId v : node(id).inputs) {
      const bool exists = value(v).live || value(v).saved;
      if (is_inside(r, v) && !exists) ++buffers.readers[buffers.at(v)];
    }
  }
  for (NodeId id = r.first; id <= r.last; ++id) {
    if (std::ranges::any_of(node(id).outputs, is_needed)) recompute_node(id, index, buffers);
  }
  for (ValueId v : std::exchange(r.reads, {})) drop_use(v, level(r.parent, v));
}

// Runs the op as in forward, and keeps those of its outputs that are needed.
void Tape::recompute_node(NodeId id, RegionId index, RegionBuffers& buffers) {
  const Node& n = node(id);
  const auto is_buffered = [&](ValueId v) {
    return is_inside(region(index), v) && bool(buffers.tensors[buffers.at(v)]);
  };
  Few<Tensor> in;
  for (ValueId v : n.inputs) {
    in.push_back(is_buffered(v) ? buffers.tensors[buffers.at(v)] : materialize(v, level(index, v)));
  }
  const Few<Tensor> out = run(id, in);
  for (size_t i = 0; i < out.size(); ++i) {
    const ValueId v = n.outputs[i];
    if (is_missing(v)) {
      value(v).live = out[i];
    } else if (buffers.readers[buffers.at(v)] > 0) {
      buffers.tensors[buffers.at(v)] = out[i];
    }
  }
  for (ValueId v : n.inputs) {
    if (is_buffered(v) && --buffers.readers[buffers.at(v)] == 0)
      buffers.tensors[buffers.at(v)] = {};
  }
}

// Recomputes the regions that the node's backward reads from, before it allocates gradients.
void Tape::recompute_around(NodeId id) {
  const Node& n = node(id);
  for (ValueId v : n.saves) {
    const RegionId r = level(n.region, v);
    if (r >= 0 && !region(r).one_op && !region(r).recomputed) recompute(r);
  }
}

RegionId Tape::outermost_region(NodeId id) const {
  RegionId r = nodes_[id].region;
  while (regions_[r].parent >= 0) r = regions_[r].parent;
  return r;
}

// Drops what regions that begin at this node still read: backward has passed them, and nothing in
// them was needed.
void Tape::leave_regions(NodeId id) {
  for (RegionId i = node(id).region; i >= 0 && region(i).first == id; i = region(i).parent) {
    TapeRegion& r = region(i);
    if (std::exchange(r.recomputed, true)) continue;
    for (ValueId v : std::exchange(r.reads, {})) drop_use(v, level(r.parent, v));
    r.uses.clear();
    r.dropped_uses.clear();
  }
}

}  // namespace spool
