// What forward saves for backward, how, and until when.

#include <algorithm>

#include "spool/autograd/tape.h"

namespace spool {

Placement Tape::placement(ValueId v) const {
  return options_.plan.placement.value_or(v, Placement::keep);
}

Offload Tape::how_to_offload(ValueId v) const {
  const auto& all = options_.plan.offloads;
  const auto at = std::ranges::lower_bound(all, v, {}, &Offload::value);
  return at != all.end() && at->value == v ? *at : Offload{.value = v};
}

void Tape::save_for_backward(NodeId id, const Needs& needs, const Few<Tensor>& in,
                             const Few<Tensor>& out) {
  Node& n = node(id);
  UndoLog log;
  try {
    if (std::ranges::any_of(n.outputs, [&](ValueId v) { return value(v).needs_grad; })) {
      for (const Slot s : n.op->saves(needs)) {
        const ValueId v = (s.output ? n.outputs : n.inputs)[s.index];
        const Tensor& t = (s.output ? out : in)[s.index];
        add_use({.value = v, .level = level(n.region, v)}, t, log);
        n.saves.push_back(v);
      }
    }
    add_region_reads(id, in, log);
  } catch (...) {
    for (; !log.empty(); log.pop_back()) {
      const CountedUse& last = log.back();
      if (last.reader >= 0) region(last.reader).reads.pop_back();
      if (last.level < 0) {
        release(last.value);
      } else {
        region(last.level).uses.pop_back();
      }
    }
    throw;
  }
}

// Counts a read by backward: of a saved tensor, or of what the region of that level will recompute.
void Tape::add_use(const CountedUse& use, const Tensor& t, UndoLog& log) {
  if (use.level < 0) {
    save(use.value, t);
  } else {
    region(use.level).uses.push_back(use.value);
  }
  log.push_back(use);
}

void Tape::drop_use(ValueId v, RegionId level) {
  if (level < 0 || region(level).recomputed) return release(v);
  region(level).dropped_uses.push_back(v);
}

// As drop_use(), in forward: what is packed stays so until backward, for a later op may save it.
void Tape::drop_read(ValueId id, RegionId level) {
  Value& v = value(id);
  if (level >= 0 || v.uses > 1 || !is_packed(v)) return drop_use(id, level);
  --v.uses;
  unread_.push_back(id);
}

void Tape::free_unread() {
  for (const ValueId id : std::exchange(unread_, {})) {
    if (value(id).uses == 0) value(id).saved.reset();
  }
}

void Tape::save(ValueId id, const Tensor& t) {
  Value& v = value(id);
  const bool first = v.uses++ == 0;
  if (options_.survey) survey_saved(id);
  try {
    if (v.producer < 0 || placement(id) != Placement::recompute) pack(id, t, first);
  } catch (...) {
    --v.uses;
    throw;
  }
}

void Tape::survey_saved(ValueId id) {
  IdTable<ValueId, NodeId>& first_saved = options_.survey->first_saved;
  first_saved.resize(values_.size(), -1);
  if (first_saved[id] < 0) first_saved[id] = nodes_.next_id() - 1;
}

void Tape::pack(ValueId id, const Tensor& t, bool first) {
  Value& v = value(id);
  if (is_packed(v)) return;
  const SavedInfo info{.op = producer_name(v), .value = id};
  if (v.producer >= 0 && !hooks_.empty()) {
    if (!first) return;
    v.saved = hooks_.back()->pack(t, info);
    check(bool(v.saved), info.op, ": the hook's pack() returned nothing for value ", id);
  } else if (placement(id) == Placement::offload || is_offloaded_by_scope(v)) {
    check(options_.offloader, "plan: value ", id, " (", info.op,
          ") is to be offloaded, but the tape has no offloader (TapeOptions::offloader)");
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
  return std::ranges::any_of(open_scopes_, [&](ScopeId open) {
    const TapeScope& scope = scopes_[open];
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
