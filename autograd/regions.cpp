// Regions: nodes that run again in backward.
//
// Each read by backward has a level: the innermost region around the reader in which the value is
// made, or none.  What is read without a level is saved in forward, as its placement says.  What is
// read at the level of a region is not: it is made when the region is replayed, once, before the
// first such read, and lives until the last.  A region is itself a reader, of all that its nodes
// read and that is made before it; and a value to be recomputed that is in no region makes one of
// its node.  So the values within an inner region are made, and let go again, when the one around
// it is replayed, and made once more when its own turn comes.

#include <algorithm>
#include <unordered_set>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/tape.h"

namespace spool {

int Tape::level(int r, ValueId v) const {
  while (r >= 0) {
    const TapeRegion& around = regions_[static_cast<size_t>(r)];
    const bool anew = !around.one_op || placement(v) == Placement::recompute;
    if (made_in(around, v) && anew) return r;
    r = around.parent;
  }
  return -1;
}

// ---------------------------------------------------------------------------------- forward

void Tape::enter(const ScopeOptions& options) {
  const auto next = static_cast<NodeId>(nodes_.size());
  const bool replays = options.recompute && options_.recording;
  if (replays) open_region({.first = next});
  const int parent = open_scopes_.empty() ? -1 : open_scopes_.back();
  open_scopes_.push_back(static_cast<int>(scopes_.size()));
  scopes_.push_back(
      {.options = options, .first = next, .parent = parent, .region = replays ? open_.back() : -1});
}

void Tape::leave_scope() {
  TapeScope& scope = scopes_[static_cast<size_t>(open_scopes_.back())];
  open_scopes_.pop_back();
  scope.last = static_cast<NodeId>(nodes_.size()) - 1;
  while (scope.region >= 0 && !open_.empty() && open_.back() >= scope.region) close_region();
}

void Tape::open_region(TapeRegion r) {
  r.parent = open_.empty() ? -1 : open_.back();
  open_.push_back(static_cast<int>(regions_.size()));
  regions_.push_back(std::move(r));
}

void Tape::open_regions_at(NodeId id) {
  if (!options_.recording) return;
  Node& n = node(id);
  const std::vector<Region>& planned = options_.plan.regions;
  for (; next_plan_region_ < planned.size() && planned[next_plan_region_].first == id;
       ++next_plan_region_) {
    open_region({.first = id, .plan_last = planned[next_plan_region_].last});
  }
  const auto recomputed = [&](ValueId v) { return placement(v) == Placement::recompute; };
  if (open_.empty() && std::ranges::any_of(n.outputs, recomputed)) {
    open_region({.first = id, .plan_last = id, .one_op = true});
  }
  if (open_.empty()) return;
  check(n.op->recomputable(), "node ", id, ": ", n.op->name(),
        " cannot be recomputed on this tape; leave it out of regions, and keep what it makes");
  n.region = open_.back();
}

void Tape::close_regions_at(NodeId id) {
  while (!open_.empty() && region(open_.back()).plan_last == id) close_region();
  for (const int r : open_) {
    check(region(r).plan_last != id, "plan: the region of nodes ", region(r).first, " to ", id,
          " ends within one that is opened by hand at node ", region(open_.back()).first,
          "; they must be disjoint, or one in the other");
  }
}

void Tape::close_region() {
  TapeRegion& r = region(open_.back());
  open_.pop_back();
  r.last = static_cast<NodeId>(nodes_.size()) - 1;
  if (!r.one_op) drop_what_nobody_needs(r);
}

// What the region reads only for nodes that will not run again.
void Tape::drop_what_nobody_needs(TapeRegion& r) {
  std::unordered_set<ValueId> needed(r.uses.begin(), r.uses.end());
  const auto is_needed = [&](ValueId v) {
    return needed.contains(v) || placement(v) == Placement::recompute;
  };
  for (NodeId id = r.last; id >= r.first; --id) {
    const Node& n = node(id);
    if (std::ranges::any_of(n.outputs, is_needed)) needed.insert(n.inputs.begin(), n.inputs.end());
  }
  std::erase_if(r.reads, [&](ValueId v) {
    if (needed.contains(v)) return false;
    drop_use(v, level(r.parent, v));
    return true;
  });
}

void Tape::read_by_regions(NodeId id, const Few<Tensor>& in, Noted& noted) {
  const Node& n = node(id);
  for (int r = n.region; r >= 0; r = region(r).parent) {
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId v = n.inputs[i];
      std::vector<ValueId>& reads = region(r).reads;
      if (made_in(region(r), v) || std::ranges::find(reads, v) != reads.end()) continue;
      reads.push_back(v);
      try {
        use(v, in[i], level(region(r).parent, v), noted, r);
      } catch (...) {
        region(r).reads.pop_back();
        throw;
      }
    }
  }
}

// --------------------------------------------------------------------------------- backward

// Values that a replay makes for its own nodes and nobody else, by id from `base` on.
struct Tape::Passing {
  ValueId base;
  std::vector<int> readers;  // among the nodes that run again and have not yet
  std::vector<Tensor> tensors;

  size_t at(ValueId v) const { return static_cast<size_t>(v - base); }
};

bool Tape::is_wanted(ValueId id) const {
  const Value& v = values_[static_cast<size_t>(id)];
  return v.uses > 0 && !v.saved && !v.live;
}

void Tape::replay(int index) {
  for (ValueId v : region(index).reads) fetch(v, level(region(index).parent, v));
  TapeRegion& r = region(index);
  r.replayed = true;
  for (ValueId v : r.uses) ++value(v).uses;
  r.uses.clear();

  const ValueId base = node(r.first).outputs.front();
  const auto count = static_cast<size_t>(*std::prev(node(r.last).outputs.end()) + 1 - base);
  Passing passing{
      .base = base, .readers = std::vector<int>(count), .tensors = std::vector<Tensor>(count)};
  const auto has_to_be_made = [&](ValueId v) {
    return is_wanted(v) || passing.readers[passing.at(v)] > 0;
  };
  for (NodeId id = r.last; id >= r.first; --id) {
    if (!std::ranges::any_of(node(id).outputs, has_to_be_made)) continue;
    for (ValueId v : node(id).inputs) {
      const bool there = value(v).live || value(v).saved;
      if (made_in(r, v) && !there) ++passing.readers[passing.at(v)];
    }
  }
  for (NodeId id = r.first; id <= r.last; ++id) {
    if (std::ranges::any_of(node(id).outputs, has_to_be_made)) run_again(id, index, passing);
  }
  for (ValueId v : std::exchange(r.reads, {})) drop_use(v, level(r.parent, v));
}

// Runs the op as it ran in forward, for those of its outputs that are needed.
void Tape::run_again(NodeId id, int index, Passing& passing) {
  const Node& n = node(id);
  const auto passes = [&](ValueId v) {
    return made_in(region(index), v) && bool(passing.tensors[passing.at(v)]);
  };
  Few<Tensor> in;
  for (ValueId v : n.inputs) {
    in.push_back(passes(v) ? passing.tensors[passing.at(v)] : fetch(v, level(index, v)));
  }
  const Few<Tensor> out = run(id, in);
  for (size_t i = 0; i < out.size(); ++i) {
    const ValueId v = n.outputs[i];
    if (is_wanted(v)) {
      value(v).live = out[i];
    } else if (passing.readers[passing.at(v)] > 0) {
      passing.tensors[passing.at(v)] = out[i];
    }
  }
  for (ValueId v : n.inputs) {
    if (passes(v) && --passing.readers[passing.at(v)] == 0) passing.tensors[passing.at(v)] = {};
  }
}

// Before the op takes memory for gradients.
void Tape::replay_around(NodeId id) {
  const Node& n = node(id);
  for (ValueId v : n.saves) {
    const int at = level(n.region, v);
    if (at >= 0 && !region(at).one_op && !region(at).replayed) replay(at);
  }
}

int Tape::outermost_region(NodeId id) const {
  int r = nodes_[static_cast<size_t>(id)].region;
  while (regions_[static_cast<size_t>(r)].parent >= 0) r = regions_[static_cast<size_t>(r)].parent;
  return r;
}

// Backward has come to the first node of these.
void Tape::leave_regions(NodeId id) {
  for (int i = node(id).region; i >= 0 && region(i).first == id; i = region(i).parent) {
    TapeRegion& r = region(i);
    if (std::exchange(r.replayed, true)) continue;
    for (ValueId v : std::exchange(r.reads, {})) drop_use(v, level(r.parent, v));
    r.uses.clear();
  }
}

}  // namespace spool
