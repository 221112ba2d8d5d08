#include "spool/autograd/engine/saving.h"

#include <algorithm>
#include <utility>

#include "spool/autograd/homes.h"
#include "spool/autograd/survey.h"

namespace spool {

void Saving::grow() { saved_.resize(program_.values.size()); }

void Saving::save(ValueId v, const Tensor& t) {
  const bool first = at(v).reads++ == 0;
  if (options_.survey) options_.survey->add_save(v, t.nbytes());
  try {
    const bool is_recomputed = placement_of(options_.plan, v) == Placement::recompute;
    if (program_.values[v].producer < 0 || !is_recomputed) pack(v, t, first);
  } catch (...) {
    --at(v).reads;
    throw;
  }
}

void Saving::pack(ValueId id, const Tensor& t, bool first) {
  if (is_packed(id)) return;
  const Value& value = program_.values[id];
  check(t || value.producer < 0, program_.producer_name(id), ": value ", id, ", ", value.spec,
        ", is to be saved, and does not exist");
  Saved& saved = at(id);
  const SavedInfo info{.op = program_.producer_name(id), .value = id};
  if (value.producer >= 0 && !value.trains && !hooks_.empty()) {
    if (!first) return;
    saved.tensor = hooks_.back()->pack(t, info);
    check(bool(saved.tensor), info.op, ": the hook's pack() returned nothing for value ", id);
  } else if (placement_of(options_.plan, id) == Placement::offload ||
             is_offloaded_by_scope(value)) {
    check(options_.offloader, "plan: value ", id, " (", info.op,
          ") is to be offloaded, but the tape has no offloader (TapeOptions::offloader)");
    saved.tensor = options_.offloader->pack(t, info, offload_of(options_.plan, id));
    saved.on_device = false;
    saved.live = {};
  } else if (first) {
    saved.on_device = true;
    if (value.producer >= 0) {
      saved.tensor = keep(t);
    } else if (!value.parameter) {
      saved.live = t;
    }
  }
}

bool Saving::is_offloaded_by_scope(const Value& value) const {
  if (value.parameter) return false;
  return std::ranges::any_of(program_.open_scopes, [&](ScopeId open) {
    const TapeScope& scope = program_.scopes[open];
    const bool inside = value.producer >= scope.first;
    return inside ? scope.options.offload_inside : scope.options.offload_inputs;
  });
}

void Saving::release(ValueId v) {
  Saved& saved = at(v);
  if (--saved.reads > 0) return;
  saved.live = {};
  saved.tensor.reset();
  saved.on_device = false;
}

void Saving::release_in_forward(ValueId v) {
  if (at(v).reads > 1 || !is_packed(v)) return release(v);
  --at(v).reads;
  unread_.push_back(v);
}

void Saving::free_unread() {
  for (const ValueId v : std::exchange(unread_, {})) {
    if (at(v).reads == 0) at(v).tensor.reset();
  }
}

void Saving::forget_from(ValueId first) {
  if (saved_.contains(first)) saved_.resize(static_cast<size_t>(first));
}

bool Saving::exists(ValueId v) const {
  return saved_.contains(v) && (saved_[v].live || saved_[v].tensor);
}

bool Saving::is_missing(ValueId v) const {
  return saved_.contains(v) && saved_[v].reads > 0 && !exists(v);
}

const Tensor* Saving::find(ValueId v) {
  Saved& saved = at(v);
  if (!saved.live && saved.tensor) saved.live = unpack(v);
  if (saved.live) return &saved.live;
  const Parameter* const parameter = program_.values[v].parameter;
  return parameter ? &data_of(*parameter) : nullptr;
}

Tensor Saving::unpack(ValueId v) {
  if (options_.survey) options_.survey->add_first_read(v);
  Tensor t = at(v).tensor->unpack();
  const Spec& spec = program_.values[v].spec;
  const char* const op = program_.producer_name(v);
  check(bool(t), op, ": the hook's unpack() returned nothing for value ", v, ", ", spec);
  check(t.spec() == spec && &t.stream() == &stream_, op, ": the hook's unpack() returned ",
        t.spec(), " for value ", v, "; it must return ", spec, " on the tape's own stream");
  return t;
}

void Saving::prefetch(ValueId v) {
  if (saved_.contains(v) && saved_[v].tensor) saved_[v].tensor->prefetch();
}

void Saving::free_all() {
  for (Saved& saved : saved_) {
    saved.tensor.reset();
    saved.live = {};
  }
}

}  // namespace spool
