#include "spool/autograd/engine/regions.h"

#include <algorithm>
#include <unordered_map>

namespace spool {

// The values that backward reads at the region's level.
std::unordered_set<ValueId> Regions::remaining_uses(const State& r) {
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

RegionId Regions::level(RegionId reader, ValueId v) const {
  for (RegionId r = reader; r >= 0; r = parent(r)) {
    const bool recomputes = !program_.regions[r].one_op || is_recomputed(v);
    if (program_.is_inside(r, v) && recomputes) return r;
  }
  return -1;
}

RegionId Regions::open_by_hand() {
  open({.first = program_.nodes.next_id()}, /*planned_last=*/-1);
  return open_.back();
}

void Regions::close_by_hand(RegionId by_hand) {
  while (!open_.empty() && open_.back() >= by_hand) {
    const bool goes_on = states_[open_.back()].planned_last >= program_.nodes.next_id();
    if (goes_on && cut_short_ < 0) cut_short_ = open_.back();
    close_innermost();
  }
  close_at(program_.nodes.next_id() - 1);  // those around it that end with it
}

bool Regions::recomputes_within(RegionId r) const {
  for (; r < program_.regions.next_id(); ++r) {
    if (!states_[r].uses.empty()) return true;
  }
  return false;
}

void Regions::open(TapeRegion region, NodeId planned_last) {
  region.parent = open_.empty() ? -1 : open_.back();
  open_.push_back(program_.regions.add(region));
  states_.push_back({.planned_last = planned_last});
}

void Regions::open_at(NodeId id) {
  check_not_cut_short();
  check_ended_before(id);
  Node& n = program_.nodes[id];
  const std::vector<Region>& planned = options_.plan.regions;
  for (; next_planned_ < planned.size() && planned[next_planned_].first == id; ++next_planned_) {
    const Region& next = planned[next_planned_];
    if (!options_.recording && next.chunks == 1) continue;
    open({.first = id, .chunks = next.chunks, .leaves = next.leaves}, next.last);
  }
  const auto recomputed = [&](ValueId v) { return is_recomputed(v); };
  if (options_.recording && open_.empty() && std::ranges::any_of(n.outputs, recomputed)) {
    open({.first = id, .one_op = true}, id);
  }
  if (open_.empty()) return;
  check(n.op->recomputable(), "node ", id, ": ", n.op->name(),
        " cannot be recomputed on this tape; leave it out of regions and keep its outputs");
  n.region = open_.back();
}

RegionId Regions::open_chunked() const {
  return !open_.empty() && program_.regions[open_.back()].chunks > 1 ? open_.back() : -1;
}

// Throws if a region of the plan ends before this node, and a checkpoint within it has not ended.
void Regions::check_ended_before(NodeId id) const {
  for (const RegionId r : open_) {
    const NodeId last = states_[r].planned_last;
    check(last < 0 || last >= id, "plan: the region of nodes ", program_.regions[r].first, " to ",
          last, " ends inside the checkpoint that begins at node ",
          program_.regions[open_.back()].first, "; they must nest or be disjoint");
  }
}

void Regions::check_not_cut_short() const {
  if (cut_short_ < 0) return;
  const TapeRegion& r = program_.regions[cut_short_];
  fail(ErrorKind::invalid, "plan: the region of nodes ", r.first, " to ",
       states_[cut_short_].planned_last,
       " reaches beyond the checkpoint around it, which ends after node ", r.last,
       "; they must nest or be disjoint");
}

void Regions::check_ends() const {
  check_not_cut_short();
  const auto refuse = [&](NodeId first, NodeId last) {
    fail(ErrorKind::invalid, "plan: the region of nodes ", first, " to ", last,
         " reaches beyond the end of the tape, which has ", program_.nodes.size(), " nodes");
  };
  for (const RegionId r : open_) {
    const NodeId last = states_[r].planned_last;
    if (last >= 0) refuse(program_.regions[r].first, last);
  }
  if (next_planned_ == options_.plan.regions.size()) return;
  const Region& next = options_.plan.regions[next_planned_];
  refuse(next.first, next.last);
}

void Regions::close_at(NodeId id) {
  while (!open_.empty() && states_[open_.back()].planned_last == id) close_innermost();
}

void Regions::close_all() {
  while (!open_.empty()) close_innermost();
}

void Regions::close_innermost() {
  const RegionId r = open_.back();
  open_.pop_back();
  program_.regions[r].last = program_.nodes.next_id() - 1;
  if (program_.regions[r].chunks > 1) chunked_.push_back(r);
  if (!program_.regions[r].one_op) drop_unneeded_reads(r);
}

void Regions::restore(const Before& before, ValueId next_value) {
  program_.regions.resize(static_cast<size_t>(before.next_region));
  states_.resize(static_cast<size_t>(before.next_region));
  std::erase_if(open_, [&](RegionId r) { return r >= before.next_region; });
  next_planned_ = before.next_planned;
  if (last_reader_.contains(next_value)) last_reader_.resize(static_cast<size_t>(next_value));
}

void Regions::save(NodeId id, const Few<Tensor>& in, const Few<Tensor>& out) {
  UndoLog log;
  try {
    add_saves(id, in, out, log);
    if (program_.nodes[id].region >= 0) add_region_reads(id, in, log);
  } catch (...) {
    undo(log);
    throw;
  }
}

void Regions::note_saves(NodeId id) {
  UndoLog log;
  Few<Tensor> in, out;
  for (size_t i = 0; i < program_.nodes[id].inputs.size(); ++i) in.push_back({});
  for (size_t i = 0; i < program_.nodes[id].outputs.size(); ++i) out.push_back({});
  add_saves(id, in, out, log);
}

void Regions::save_chunked(RegionId r, const Tensors& known) {
  const NodeId first = program_.regions[r].first, end = program_.nodes.next_id();
  const auto tensors_of = [&](const Few<ValueId>& ids) {
    Few<Tensor> all;
    for (const ValueId v : ids) {
      const Parameter* const parameter = program_.values[v].parameter;
      const auto at = known.find(v);
      all.push_back(parameter ? parameter->data : at == known.end() ? Tensor() : at->second);
    }
    return all;
  };
  std::vector<std::pair<ValueId, RegionId>> readers_before;
  UndoLog log;
  try {
    for (NodeId id = first; id < end; ++id) {
      const Node& n = program_.nodes[id];
      const Few<Tensor> in = tensors_of(n.inputs), out = tensors_of(n.outputs);
      for (const ValueId v : n.inputs) readers_before.emplace_back(v, last_reader_.value_or(v, -1));
      add_saves(id, in, out, log);
      if (n.region >= 0) add_region_reads(id, in, log);
    }
  } catch (...) {
    undo(log);
    for (; !readers_before.empty(); readers_before.pop_back()) {
      const auto [v, reader] = readers_before.back();
      if (last_reader_.contains(v)) last_reader_[v] = reader;
    }
    for (NodeId id = first; id < end; ++id) program_.nodes[id].saves = {};
    throw;
  }
}

void Regions::add_saves(NodeId id, const Few<Tensor>& in, const Few<Tensor>& out, UndoLog& log) {
  Node& n = program_.nodes[id];
  const auto needs_grad = [&](ValueId v) { return program_.values[v].needs_grad; };
  if (!std::ranges::any_of(n.outputs, needs_grad)) return;
  for (const Slot s : n.op->saves(program_.needs(id))) {
    const ValueId v = (s.output ? n.outputs : n.inputs)[s.index];
    const Tensor& t = (s.output ? out : in)[s.index];
    add_use({.value = v, .level = level(n.region, v)}, t, log);
    n.saves.push_back(v);
  }
}

// An open region has read a value before if the last reader was in it, or in a region within it,
// which was opened later.
void Regions::add_region_reads(NodeId id, const Few<Tensor>& in, UndoLog& log) {
  const Node& n = program_.nodes[id];
  const auto has_read = [&](RegionId r, size_t i) {
    const ValueId* const input = n.inputs.begin() + i;
    return last_reader_.value_or(*input, -1) >= r ||
           std::find(n.inputs.begin(), input, *input) != input;
  };
  for (RegionId r = n.region; r >= 0; r = parent(r)) {
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId v = n.inputs[i];
      if (program_.is_inside(r, v) || has_read(r, i)) continue;
      states_[r].reads.push_back(v);
      try {
        add_use({.value = v, .level = level(parent(r), v), .reader = r}, in[i], log);
      } catch (...) {
        states_[r].reads.pop_back();
        throw;
      }
    }
  }
  if (last_reader_.size() < program_.values.size()) {
    last_reader_.resize(program_.values.size(), -1);
  }
  for (const ValueId v : n.inputs) last_reader_[v] = n.region;
}

// Counts a read by backward: of a saved tensor, or of a value that its level will recompute.
void Regions::add_use(const CountedUse& use, const Tensor& t, UndoLog& log) {
  if (use.level < 0) {
    saving_.save(use.value, t);
  } else {
    states_[use.level].uses.push_back(use.value);
  }
  log.push_back(use);
}

void Regions::undo(UndoLog& log) {
  for (; !log.empty(); log.pop_back()) {
    const CountedUse& last = log.back();
    if (last.reader >= 0) states_[last.reader].reads.pop_back();
    if (last.level < 0) {
      saving_.release(last.value);
    } else {
      states_[last.level].uses.pop_back();
    }
  }
}

void Regions::drop_use(ValueId v, RegionId level) {
  if (level < 0 || states_[level].recomputed) return saving_.release(v);
  states_[level].dropped_uses.push_back(v);
}

void Regions::drop_use_in_forward(ValueId v, RegionId level) {
  if (level >= 0) return drop_use(v, level);
  saving_.release_in_forward(v);
}

// Drops what the region reads only for nodes that will not be recomputed.
void Regions::drop_unneeded_reads(RegionId id) {
  const TapeRegion& r = program_.regions[id];
  std::unordered_set<ValueId> needed = remaining_uses(states_[id]);
  const auto is_needed = [&](ValueId v) { return needed.contains(v) || is_recomputed(v); };
  for (NodeId n = r.last; n >= r.first; --n) {
    const Node& node = program_.nodes[n];
    if (std::ranges::any_of(node.outputs, is_needed)) {
      needed.insert(node.inputs.begin(), node.inputs.end());
    }
  }
  std::erase_if(states_[id].reads, [&](ValueId v) {
    if (needed.contains(v)) return false;
    drop_use_in_forward(v, level(r.parent, v));
    return true;
  });
}

}  // namespace spool
