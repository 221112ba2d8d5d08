// Regions in forward: which nodes are in one, and what is saved to recompute them in backward (see
// recompute.cpp).
//
// Each read by backward has a level: the innermost region around the reader in which the value is
// computed, or none, -1.  A value read without a level is saved in forward, as its placement says.
// A value read at the level of a region is not saved: it is recomputed with the region, once,
// before the first such read, and lives until the last.  A region is itself a reader, of everything
// its nodes read that is computed before it; and a value to be recomputed that is in no region
// makes a region of its node.  So an inner region's values are computed and freed when the region
// around it is recomputed, and computed again when the inner region itself is.

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/tape.h"

namespace spool {

namespace {

// The values that backward reads at the region's level.
std::unordered_set<ValueId> remaining_uses(const TapeRegion& r) {
  if (r.dropped_uses.empty()) return {r.uses.begin(), r.uses.end()};
  std::unordered_map<ValueId, int> counts;
  for (const ValueId v : r.uses) ++counts[v];
  for (const ValueId v : r.dropped_uses) --counts[v];
  std::unordered_set<ValueId> used;
  for (const auto& [v, count] : counts) {
    if (count > 0) used.insert(v);
  }
  return used;
}

}  // namespace

RegionId Tape::level(RegionId reader, ValueId v) const {
  for (RegionId r = reader; r >= 0; r = regions_[r].parent) {
    const TapeRegion& around = regions_[r];
    const bool recomputes = !around.one_op || placement(v) == Placement::recompute;
    if (is_inside(around, v) && recomputes) return r;
  }
  return -1;
}

void Tape::enter_scope(const ScopeOptions& options) {
  const NodeId next = nodes_.next_id();
  const bool opens_region = options.recompute && options_.recording;
  if (opens_region) open_region({.first = next});
  const ScopeId parent = open_scopes_.empty() ? -1 : open_scopes_.back();
  open_scopes_.push_back(scopes_.add({.options = options,
                                      .first = next,
                                      .parent = parent,
                                      .region = opens_region ? open_regions_.back() : -1}));
}

void Tape::leave_scope() {
  TapeScope& scope = scopes_[open_scopes_.back()];
  open_scopes_.pop_back();
  scope.last = nodes_.next_id() - 1;
  if (scope.region < 0) return;
  while (!open_regions_.empty() && open_regions_.back() >= scope.region) {
    const bool goes_on = region(open_regions_.back()).plan_last >= nodes_.next_id();
    if (goes_on && cut_short_ < 0) cut_short_ = open_regions_.back();
    close_region();
  }
}

void Tape::open_region(TapeRegion r) {
  r.parent = open_regions_.empty() ? -1 : open_regions_.back();
  open_regions_.push_back(regions_.add(std::move(r)));
}

void Tape::open_regions_at(NodeId id) {
  if (!options_.recording) return;
  check_not_cut_short();
  Node& n = node(id);
  const std::vector<Region>& planned = options_.plan.regions;
  for (; next_plan_region_ < planned.size() && planned[next_plan_region_].first == id;
       ++next_plan_region_) {
    open_region({.first = id, .plan_last = planned[next_plan_region_].last});
  }
  const auto is_recomputed = [&](ValueId v) { return placement(v) == Placement::recompute; };
  if (open_regions_.empty() && std::ranges::any_of(n.outputs, is_recomputed)) {
    open_region({.first = id, .plan_last = id, .one_op = true});
  }
  if (open_regions_.empty()) return;
  check(n.op->recomputable(), "node ", id, ": ", n.op->name(),
        " cannot be recomputed on this tape; leave it out of regions and keep its outputs");
  n.region = open_regions_.back();
  check_nesting_at(id);
}

// Throws if a region of the plan ends at this node, and a checkpoint within it does not.
void Tape::check_nesting_at(NodeId id) const {
  RegionId inner = -1;  // the innermost that does not end here
  for (size_t i = open_regions_.size(); i-- > 0;) {
    const RegionId r = open_regions_[i];
    if (regions_[r].plan_last != id) {
      if (inner < 0) inner = r;
      continue;
    }
    if (inner < 0) continue;
    fail(ErrorKind::invalid, "plan: the region of nodes ", regions_[r].first, " to ", id,
         " ends inside the checkpoint that begins at node ", regions_[inner].first,
         "; they must nest or be disjoint");
  }
}

// Throws if a checkpoint that ended before the last node cut a region of the plan short.
void Tape::check_not_cut_short() const {
  if (cut_short_ < 0) return;
  const TapeRegion& r = regions_[cut_short_];
  fail(ErrorKind::invalid, "plan: the region of nodes ", r.first, " to ", r.plan_last,
       " reaches beyond the checkpoint around it, which ends after node ", r.last,
       "; they must nest or be disjoint");
}

// Throws if the tape ends before a region of the plan does.
void Tape::check_regions_end() const {
  check_not_cut_short();
  const auto refuse = [&](NodeId first, NodeId last) {
    fail(ErrorKind::invalid, "plan: the region of nodes ", first, " to ", last,
         " reaches beyond the end of the tape, which has ", nodes_.size(), " nodes");
  };
  for (const RegionId r : open_regions_) {
    if (regions_[r].plan_last >= 0) refuse(regions_[r].first, regions_[r].plan_last);
  }
  if (next_plan_region_ == options_.plan.regions.size()) return;
  const Region& next = options_.plan.regions[next_plan_region_];
  refuse(next.first, next.last);
}

void Tape::close_regions_at(NodeId id) {
  while (!open_regions_.empty() && region(open_regions_.back()).plan_last == id) close_region();
}

void Tape::close_region() {
  TapeRegion& r = region(open_regions_.back());
  open_regions_.pop_back();
  r.last = nodes_.next_id() - 1;
  if (!r.one_op) drop_unneeded_reads(r);
}

// Drops what the region reads only for nodes that will not be recomputed.
void Tape::drop_unneeded_reads(TapeRegion& r) {
  std::unordered_set<ValueId> needed = remaining_uses(r);
  const auto is_needed = [&](ValueId v) {
    return needed.contains(v) || placement(v) == Placement::recompute;
  };
  for (NodeId id = r.last; id >= r.first; --id) {
    const Node& n = node(id);
    if (std::ranges::any_of(n.outputs, is_needed)) needed.insert(n.inputs.begin(), n.inputs.end());
  }
  std::erase_if(r.reads, [&](ValueId v) {
    if (needed.contains(v)) return false;
    drop_read(v, level(r.parent, v));
    return true;
  });
}

void Tape::add_region_reads(NodeId id, const Few<Tensor>& in, UndoLog& log) {
  const Node& n = node(id);
  if (n.region < 0) return;
  // A region that is open has read a value before if the last to read it was that region or one
  // within, which was opened later.
  const auto has_read = [&](RegionId r, size_t i) {
    const ValueId* const input = n.inputs.begin() + i;
    return value(*input).last_reader >= r || std::find(n.inputs.begin(), input, *input) != input;
  };
  for (RegionId r = n.region; r >= 0; r = region(r).parent) {
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId v = n.inputs[i];
      if (is_inside(region(r), v) || has_read(r, i)) continue;
      region(r).reads.push_back(v);
      try {
        add_use({.value = v, .level = level(region(r).parent, v), .reader = r}, in[i], log);
      } catch (...) {
        region(r).reads.pop_back();
        throw;
      }
    }
  }
  for (const ValueId v : n.inputs) value(v).last_reader = n.region;
}

}  // namespace spool
