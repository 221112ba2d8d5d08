// What forward puts away for backward, and how long.

#include <algorithm>

#include "spool/autograd/tape.h"

namespace spool {

Placement Tape::placement(ValueId v) const {
  const auto i = static_cast<size_t>(v);
  return i < options_.plan.placement.size() ? options_.plan.placement[i] : Placement::keep;
}

Offload Tape::how_to_offload(ValueId v) const {
  const auto& all = options_.plan.offloads;
  const auto at = std::ranges::lower_bound(all, v, {}, &Offload::value);
  return at != all.end() && at->value == v ? *at : Offload{.value = v};
}

void Tape::save_for_backward(NodeId id, const Needs& needs, const Few<Tensor>& in,
                             const Few<Tensor>& out) {
  Node& n = node(id);
  Noted noted;
  try {
    if (std::ranges::any_of(n.outputs, [&](ValueId v) { return value(v).needs_grad; })) {
      for (const Slot s : n.op->saves(needs)) {
        const auto i = static_cast<size_t>(s.index);
        const ValueId v = (s.output ? n.outputs : n.inputs)[i];
        use(v, (s.output ? out : in)[i], level(n.region, v), noted);
        n.saves.push_back(v);
      }
    }
    read_by_regions(id, in, noted);
  } catch (...) {
    for (; !noted.empty(); noted.pop_back()) {
      const Note& last = noted.back();
      if (last.read_by >= 0) region(last.read_by).reads.pop_back();
      drop_use(last.value, last.level);
    }
    throw;
  }
}

// A read by backward, of what is saved, or of what the region of that level will make again.
void Tape::use(ValueId v, const Tensor& t, int level, Noted& noted, int read_by) {
  if (level < 0) {
    save(v, t);
  } else {
    region(level).uses.push_back(v);
  }
  noted.push_back({v, level, read_by});
}

void Tape::drop_use(ValueId v, int level) {
  if (level < 0 || region(level).replayed) return release(v);
  std::vector<ValueId>& uses = region(level).uses;
  uses.erase(std::prev(std::ranges::find(uses.rbegin(), uses.rend(), v).base()));
}

void Tape::save(ValueId id, const Tensor& t) {
  Value& v = value(id);
  const bool first = v.uses++ == 0;
  if (options_.survey) note_saved(id);
  try {
    if (v.producer < 0 || placement(id) != Placement::recompute) put_away(id, t, first);
  } catch (...) {
    --v.uses;
    throw;
  }
}

void Tape::note_saved(ValueId id) {
  std::vector<NodeId>& all = options_.survey->first_saved;
  all.resize(values_.size(), -1);
  NodeId& at = all[static_cast<size_t>(id)];
  if (at < 0) at = static_cast<NodeId>(nodes_.size()) - 1;
}

void Tape::put_away(ValueId id, const Tensor& t, bool first) {
  Value& v = value(id);
  const SavedInfo info{.op = v.producer < 0 ? "input" : node(v.producer).op->name(), .value = id};
  if (v.producer >= 0 && !hooks_.empty()) {
    if (!first) return;
    v.saved = hooks_.back()->pack(t, info);
    check(bool(v.saved), info.op, ": the hook's pack() returned nothing for value ", id);
  } else if (placement(id) == Placement::offload || is_offloaded_by_scope(v)) {
    if (!first && !v.on_device) return;
    check(options_.offloader, "plan: value ", id, " (", info.op,
          ") is to be offloaded, and the tape was given no offloader (TapeOptions::offloader)");
    v.saved = options_.offloader->pack(t, info, how_to_offload(id));
    v.on_device = false;
    v.live = {};
  } else if (first) {
    v.on_device = true;
    if (v.producer >= 0) {
      v.saved = keep(t);
    } else if (!v.parameter) {
      v.live = t;
    }
  }
}

bool Tape::is_offloaded_by_scope(const Value& v) const {
  if (v.parameter) return false;
  return std::ranges::any_of(open_scopes_, [&](int open) {
    const TapeScope& scope = scopes_[static_cast<size_t>(open)];
    return v.producer >= scope.first ? scope.options.offload_inside : scope.options.offload_inputs;
  });
}

void Tape::release(ValueId id) {
  Value& v = value(id);
  if (--v.uses > 0) return;
  v.live = {};
  v.saved.reset();
  v.on_device = false;
}

}  // namespace spool
