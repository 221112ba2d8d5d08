#include "spool/models/optimizers/update_loop.h"

#include <algorithm>
#include <utility>

namespace spool {
namespace {

// A slice's elements within its bucket.
Range in_bucket(const Buckets::Slice& slice) {
  return {slice.at, slice.at + slice.elements.size()};
}

// A slice's elements within its part.
Range within(const StateRows::Part& part, const Buckets::Slice& slice) {
  const int64_t first = part.range.elements.begin;
  return {slice.elements.begin - first, slice.elements.end - first};
}

// What is whole, as most is, is copied once: views are made a thousand times a rehearsal.
void set_elements(View& to, const View& whole, Range elements) {
  elements.size() == whole.numel() ? to = whole : to = whole.slice_elements(elements);
}

// The copy of a slice's gradient in a slot, whose elements have room for f32.
View staged(const HostSlot& slot, const Buckets::Slice& slice, DType type) {
  return {slot.data() + static_cast<size_t>(slice.at) * sizeof(float),
          {Shape{slice.elements.size()}, type}};
}

// The numbers by which random bits of each parameter are drawn; places in the list if the numbers
// of several models would coincide.
std::vector<uint32_t> numbers_of(const std::vector<Parameter*>& parameters) {
  std::vector<uint32_t> numbers, places;
  for (const Parameter* p : parameters) {
    places.push_back(static_cast<uint32_t>(places.size()));
    numbers.push_back(p->number.value_or(places.back()));
  }
  std::vector<uint32_t> sorted = numbers;
  std::ranges::sort(sorted);
  const bool are_distinct = std::ranges::adjacent_find(sorted) == sorted.end();
  return are_distinct ? numbers : places;
}

}  // namespace

UpdateLoop::UpdateLoop(const UpdateRule& rule, const std::vector<Parameter*>& parameters,
                       std::vector<ParameterRate> rates, StateRows& state, int64_t scheduled,
                       Homes* homes)
    : rule_(rule),
      parameters_(parameters),
      rates_(std::move(rates)),
      numbers_(numbers_of(parameters)),
      state_(state),
      device_(state.device()),
      homes_(homes),
      here_(state.device_buckets()) {
  for (const StateRow& row : state.rows()) {
    row_begins_.push_back(element_bytes_);
    element_bytes_ += size_of(row.type);
  }
  if (homes_ && !homes_->updates_in_backward()) {
    parameter_bytes_ = size_of(parameters_.front()->spec().dtype);
  }
  if (!state_.host_updates()) return;
  const auto make = [&](const Shape& shape, DType type) {
    return Tensor({shape, type}, state_.host(),
                  {.name = "optimizer scalars", .purpose = Purpose::optimizer});
  };
  schedule_ = make({scheduled}, DType::f32);
  clip_ = make({3}, DType::f32);
  random_ = make({4}, DType::i32);
  state_.host().synchronize();
}

void UpdateLoop::update(const UpdateStep::Scalars& scalars) {
  Slots slots;
  gradient_bytes_ = bytes_of_gradients();
  allocate(slots);
  unused_.clear();
  for (const Parameter* p : parameters_) unused_.push_back(p->gathered().shape.numel());
  half_updated_ = true;
  state_.enqueue_whole([&] { enqueue(slots, scalars); });
  half_updated_ = false;
}

void UpdateLoop::allocate(Slots& slots) const {
  const Buckets& all = state_.host_buckets();
  const auto elements = static_cast<size_t>(all.bucket_elements());
  size_t count = 0;  // of buckets that are updated
  for (const Bucket& bucket : all.all()) {
    if (count < in_flight && has_gradient(bucket)) ++count;
  }
  for (size_t i = 0; i < count; ++i) {
    if (state_.host_updates()) {
      slots[i].gradients = HostSlot(state_.link(), elements * sizeof(float),
                                    "gradients on the host", Purpose::gradient);
    } else {
      const size_t of_one = element_bytes_ + parameter_bytes_ + gradient_bytes_;
      const auto bytes = static_cast<int64_t>(elements * of_one);
      slots[i].rows = Tensor({Shape{bytes}, DType::i8}, device_,
                             {.name = "optimizer bucket", .purpose = Purpose::optimizer});
    }
  }
}

void UpdateLoop::enqueue(Slots& slots, const UpdateStep::Scalars& scalars) {
  const std::vector<Bucket>&here = here_.all(), &there = state_.host_buckets().all();
  UpdateStep::Scalars on_host;
  if (!there.empty()) {
    state_.link().begin_out();
    state_.link().begin_in();
    on_host = scalars_on_host(scalars);
  }
  size_t updated = 0, begun = 0;  // buckets here and there
  for (size_t n = 0; n < there.size(); ++n) {
    // While the bucket is copied in, part of the state on the device is updated.
    for (const size_t end = here.size() * (n + 1) / there.size(); updated < end; ++updated) {
      update_here(here[updated], scalars);
    }
    if (has_gradient(there[n])) {
      Slot& slot = slots[begun++ % in_flight];
      state_.host_updates() ? update_on_host(there[n], slot, on_host)
                            : stream(there[n], slot, scalars);
    }
    tell_owner(there[n], here_.elements(), state_.host_updates() ? state_.link().in() : device_);
  }
  for (; updated < here.size(); ++updated) update_here(here[updated], scalars);
  if (there.empty()) return;
  device_.wait(state_.link().out().record());
  device_.wait(state_.link().in().record());
}

// The scalars, copied to the host if it updates.
UpdateStep::Scalars UpdateLoop::scalars_on_host(const UpdateStep::Scalars& scalars) {
  UpdateStep::Scalars copies = scalars;
  if (!state_.host_updates()) return copies;
  state_.host_updates()->trace_with(device_, TraceLane::update);
  const auto fetch = [&](View& from, const Tensor& to) {
    if (!from) return;
    state_.link().out().copy_out(to.view().data(), from.data(), to.nbytes());
    from = to;
  };
  fetch(copies.schedule, schedule_);
  fetch(copies.clip, clip_);
  fetch(copies.random, random_);
  return copies;
}

void UpdateLoop::update_here(const Bucket& bucket, const UpdateStep::Scalars& scalars) {
  const Parts& parts = state_.on_device();
  const auto entry = [&](size_t i) { return entry_of(bucket.slices[i], parts); };
  rule_.update(UpdateStep(bucket.slices.size(), entry, scalars, device_));
  free_used_gradients(bucket, parts);
  tell_owner(bucket, /*begin=*/0, device_);
}

// The bucket's elements are counted from that one of the own row, if there is one.
void UpdateLoop::tell_owner(const Bucket& bucket, int64_t begin, Stream& by) const {
  const Range& elements = bucket.elements;
  if (OwnRow* own = state_.own())
    own->is_updated({begin + elements.begin, begin + elements.end}, by);
}

void UpdateLoop::stream(const Bucket& bucket, Slot& slot, const UpdateStep::Scalars& scalars) {
  Stream &in = state_.link().in(), &out = state_.link().out();
  const Range whole{0, bucket.elements.size()};
  in.wait(slot.done);
  for (size_t row = 0; row < row_begins_.size(); ++row) {
    const View from = state_.of_host(row, bucket.elements);
    in.copy_in(row_of(slot.rows, row, whole).data(), from.data(), from.nbytes());
  }
  for_each_away(bucket, slot, [&](const View& to, const View& from, bool is_gradient) {
    const TraceScope scope(device_.trace(), is_gradient ? "gradients in" : "parameters in");
    in.copy_in(to.data(), from.data(), from.nbytes());
  });
  device_.wait(in.record());
  const auto row = [&](View& to, size_t number, const Buckets::Slice& slice) {
    to = row_of(slot.rows, number, in_bucket(slice));
  };
  const auto entry = [&](size_t i) {
    UpdateEntry e = entry_of(bucket.slices[i], state_.on_host(), row);
    if (homes_ && e.grad) place_in(slot, bucket.slices[i], e);
    return e;
  };
  rule_.update(UpdateStep(bucket.slices.size(), entry, scalars, device_));
  state_.link().begin_out();
  for (size_t number = 0; number < row_begins_.size(); ++number) {
    const View to = state_.of_host(number, bucket.elements);
    out.copy_out(to.data(), row_of(slot.rows, number, whole).data(), to.nbytes());
  }
  for_each_away(bucket, slot, [&](const View& from, const View& to, bool is_gradient) {
    const TraceScope scope(device_.trace(), "parameters out");
    if (!is_gradient) out.copy_out(to.data(), from.data(), to.nbytes());
  });
  free_used_gradients(bucket, state_.on_host());
  slot.done = out.record();
}

void UpdateLoop::update_on_host(const Bucket& bucket, Slot& slot,
                                const UpdateStep::Scalars& on_host) {
  Stream &in = state_.link().in(), &out = state_.link().out(), &updates = *state_.host_updates();
  const Parts& parts = state_.on_host();
  const auto entry = [&](size_t i) {
    const Buckets::Slice& slice = bucket.slices[i];
    UpdateEntry e = entry_of(slice, parts);
    if (!e.grad) return e;
    e.grad = staged(slot.gradients, slice, e.grad.dtype());
    e.parameter =
        parts[slice.part].parameter.view().slice_elements(within(parts[slice.part], slice));
    return e;
  };
  const auto for_each_entry = [&](const auto& copy) {
    for (size_t i = 0; i < bucket.slices.size(); ++i) {
      const UpdateEntry on_device = entry_of(bucket.slices[i], parts);
      if (on_device.grad) copy(on_device, entry(i));
    }
  };
  out.wait(slot.done);
  for_each_entry([&](const UpdateEntry& from, const UpdateEntry& to) {
    out.copy_out(to.grad.data(), from.grad.data(), from.grad.nbytes());
  });
  updates.wait(out.record());
  rule_.update(UpdateStep(bucket.slices.size(), entry, on_host, updates, &state_.host()));
  slot.done = updates.record();
  in.wait(slot.done);
  for_each_entry([&](const UpdateEntry& to, const UpdateEntry& from) {
    in.copy_in(to.parameter.data(), from.parameter.data(), from.parameter.nbytes());
  });
}

const StateRows::Part* UpdateLoop::part_on_host(size_t parameter) const {
  for (const StateRows::Part& part : state_.on_host()) {
    if (part.range.parameter == parameter) return &part;
  }
  return nullptr;
}

void UpdateLoop::update_one(size_t parameter, const std::vector<Tensor>& fetched,
                            const UpdateStep::Scalars& scalars) {
  half_updated_ = true;
  for (const auto* parts : {&state_.on_device(), &state_.on_host()}) {
    for (const StateRows::Part& part : *parts) {
      if (part.range.parameter != parameter) continue;
      const bool is_here = parts == &state_.on_device();
      const auto row = [&](View& to, size_t number, const Buckets::Slice&) {
        to = is_here ? part.rows[number].view() : fetched[number].view();
      };
      const auto index = static_cast<size_t>(&part - parts->data());
      const Buckets::Slice whole{.part = index, .elements = part.range.elements};
      const auto entry = [&](size_t) { return entry_of(whole, *parts, row); };
      rule_.update(UpdateStep(/*count=*/1, entry, scalars, device_));
    }
  }
}

View UpdateLoop::gradient_of(size_t parameter, Range elements) const {
  if (state_.own()) return state_.own()->gradient(parameter, elements);
  View gradient = parameters_[parameter]->grad;
  if (!gradient && homes_) gradient = homes_->gradient(*parameters_[parameter]);
  if (gradient) set_elements(gradient, View(gradient), elements);
  return gradient;
}

bool UpdateLoop::has_gradient(const Bucket& bucket) const {
  return std::ranges::any_of(bucket.slices, [&](const Buckets::Slice& slice) {
    const size_t i = state_.on_host()[slice.part].range.parameter;
    const Parameter& p = *parameters_[i];
    if (state_.own()) return bool(gradient_of(i, slice.elements));
    return p.grad || (homes_ && homes_->has_sum(p));
  });
}

template <class SetRow>
UpdateEntry UpdateLoop::entry_of(const Buckets::Slice& slice, const Parts& parts,
                                 const SetRow& set_row) const {
  UpdateEntry entry;
  const size_t i = parts[slice.part].range.parameter;
  const Parameter& p = *parameters_[i];
  entry.grad = gradient_of(i, slice.elements);
  if (!entry.grad) return entry;
  if (p.data) entry.parameter = p.elements(slice.elements);
  entry.rate = rates_[i].rate;
  entry.decay = rates_[i].decay;
  entry.index = numbers_[i];
  entry.first = slice.elements.begin;
  for (size_t row = 0; row < row_begins_.size(); ++row) {
    const bool master = state_.has_masters() && row + 1 == row_begins_.size();
    set_row(master ? entry.master : entry.state[row], row, slice);
  }
  return entry;
}

UpdateEntry UpdateLoop::entry_of(const Buckets::Slice& slice, const Parts& parts) const {
  return entry_of(slice, parts, [&](View& to, size_t row, const Buckets::Slice&) {
    const StateRows::Part& part = parts[slice.part];
    set_elements(to, part.rows[row].view(), within(part, slice));
  });
}

// Frees the last gradient that backward computed first: a stack, for which memory is laid out.
void UpdateLoop::free_used_gradients(const Bucket& bucket, const Parts& parts) {
  if (state_.own()) return;
  for (size_t n = bucket.slices.size(); n-- > 0;) {
    const Buckets::Slice& slice = bucket.slices[n];
    const size_t i = parts[slice.part].range.parameter;
    unused_[i] -= slice.elements.size();
    if (unused_[i] > 0) continue;
    parameters_[i]->grad = {};
    if (homes_) homes_->free_gradient(*parameters_[i]);
  }
}

// Of one element, of the gradients that are on the host now.
size_t UpdateLoop::bytes_of_gradients() const {
  size_t bytes = 0;
  for (const Parameter* p : parameters_) {
    if (const View gradient = homes_ ? homes_->gradient(*p) : View()) {
      bytes = std::max(bytes, size_of(gradient.dtype()));
    }
  }
  return bytes;
}

// Calls copy(in the slot, in host memory, whether it is a gradient) for what of a bucket is away,
// beside state.
template <class Copy>
void UpdateLoop::for_each_away(const Bucket& bucket, const Slot& slot, const Copy& copy) const {
  if (!homes_) return;
  for (const Buckets::Slice& slice : bucket.slices) {
    const size_t i = state_.on_host()[slice.part].range.parameter;
    const Parameter& p = *parameters_[i];
    if (!p.grad && !homes_->has_sum(p)) continue;
    if (!p.data) {
      const View home = p.home.view().slice_elements(slice.elements);
      copy(extra_row_of(slot.rows, /*of_gradients=*/false, slice, home.dtype()), home, false);
    }
    if (p.grad) continue;
    const View gradient = gradient_of(i, slice.elements);
    copy(extra_row_of(slot.rows, true, slice, gradient.dtype()), gradient, true);
  }
}

// In place of what is away, its copy in the slot.
void UpdateLoop::place_in(const Slot& slot, const Buckets::Slice& slice, UpdateEntry& entry) const {
  const Parameter& p = *parameters_[state_.on_host()[slice.part].range.parameter];
  if (!p.data) {
    entry.parameter = extra_row_of(slot.rows, /*of_gradients=*/false, slice, p.spec().dtype);
  }
  if (!p.grad) entry.grad = extra_row_of(slot.rows, true, slice, entry.grad.dtype());
}

// The slice's elements in the row of parameters, or of gradients, which come after the state's.
// Gradients of several types have places of the largest.
View UpdateLoop::extra_row_of(const Tensor& memory, bool of_gradients, const Buckets::Slice& slice,
                              DType type) const {
  const auto bucket = static_cast<size_t>(state_.host_buckets().bucket_elements());
  const size_t before = element_bytes_ + (of_gradients ? parameter_bytes_ : 0);
  const size_t place = of_gradients ? gradient_bytes_ : parameter_bytes_;
  const size_t at = bucket * before + static_cast<size_t>(slice.at) * place;
  return {memory.view().data() + at, {Shape{slice.elements.size()}, type}};
}

// Elements of one row of state in a slot.
View UpdateLoop::row_of(const Tensor& memory, size_t row, Range elements) const {
  const auto bucket = static_cast<size_t>(state_.host_buckets().bucket_elements());
  const StateRow& kind = state_.rows()[row];
  std::byte* const begin = memory.view().data() + bucket * row_begins_[row];
  return View(begin, {Shape{static_cast<int64_t>(bucket)}, kind.type}).slice_elements(elements);
}

}  // namespace spool
