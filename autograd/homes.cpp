#include "spool/autograd/homes.h"

#include <algorithm>
#include <utility>

#include "spool/runtime/integer.h"
#include "spool/runtime/memory/enqueue_whole.h"

namespace spool {
Homes::Homes(Parameters& parameters, HostLink& link, const Plan& plan, int64_t micro_batches)
    : parameters_(parameters),
      link_(link),
      device_(link.compute()),
      host_(link.open_host()),
      micro_batches_(micro_batches),
      updates_(plan.update == UpdateTime::backward),
      units_leaving_(plan.units_leaving),
      planned_(plan.units),
      of_(parameters.size()) {
  check_units(plan, parameters);
  try {
    for (const PlannedUnit& unit : planned_) add_unit(unit);
    host_->synchronize();  // its memory is there for copies
    for (const Home& home : homes_) {
      Parameter& p = *home.parameter;
      if (p.home) p.data ? store(p) : void(p.data = Tensor::on_host(p.name));
    }
  } catch (...) {
    leave();
    throw;
  }
  for (Unit& unit : units_) {
    forward_.push_back({unit.planned->forward_fetch, &unit});
    backward_.push_back({unit.planned->backward_fetch, &unit});
  }
  std::ranges::stable_sort(forward_, {}, &Fetch::node);
  std::ranges::stable_sort(backward_, std::ranges::greater{}, &Fetch::node);
}

// The parameters of a unit are one block of memory, so that one copy brings them.
void Homes::add_unit(const PlannedUnit& planned) {
  Unit& unit = units_.emplace_back();
  unit.planned = &planned;
  size_t bytes = 0;
  for (const uint32_t number : planned.parameters) {
    Parameter& p = *parameters_[number];
    Home& home = homes_.emplace_back();
    home.parameter = &p;
    home.gradient_away = planned.gradients_away && p.trainable;
    of_[number] = {&home, &unit};
    unit.homes.push_back(&home);
    p.homes = this;
    home.at = bytes;
    bytes += round_up(p.spec().nbytes(), Arena::granule);
  }
  if (!planned.parameters_away) return;
  const Parameter& first = *parameters_[planned.parameters.front()];
  unit.home = Tensor({Shape{static_cast<int64_t>(bytes)}, DType::i8}, *host_,
                     {.name = first.name, .purpose = first.purpose()});
  for (const Home* home : unit.homes) {
    Parameter& p = *home->parameter;
    p.home = unit.home.part(home->at, p.spec());
  }
}

Homes::~Homes() {
  forget();
  wait_quietly(device_);  // whose graphs may have copies in them
  wait_quietly(link_);
  leave();
}

// The parameters have no homes afterwards.
void Homes::leave() noexcept {
  for (Home& home : homes_) {
    home.parameter->homes = nullptr;
    if (home.parameter->home) home.parameter->data = {};
    home.parameter->home = {};
  }
}

const Homes::Home* Homes::at(const Parameter& p) const {
  return p.homes == this ? of_[*p.number].first : nullptr;
}

// A unit sends its gradients; or, updated in backward, what of it is on the host.
void Homes::set_user(GradientUser* user) {
  user_ = user;
  std::vector<size_t> all;
  for (Unit& unit : units_) {
    for (Home* home : unit.homes) {
      const Parameter& p = *home->parameter;
      if (!p.trainable) continue;
      if (home->gradient_away && (micro_batches_ > 1 || !updates_)) {
        const DType type = p.spec().dtype;
        unit.leaving_bytes +=
            Spec{p.spec().shape, micro_batches_ > 1 ? accumulator(type) : type}.nbytes();
      }
      if (!updates_) continue;
      home->state = user->state_on_host(p);
      unit.leaving_bytes += p.home ? p.spec().nbytes() : 0;
      for (const View& row : home->state) unit.leaving_bytes += row.nbytes();
    }
    if (unit.leaving_bytes > 0) all.push_back(unit.leaving_bytes);
  }
  std::ranges::sort(all);
  usual_bytes_ = all.empty() ? 0 : all[all.size() / 2];  // most are alike
}

View Homes::gradient(const Parameter& p) const {
  const Home* const home = at(p);
  if (!home || !home->sum) return {};
  return {home->sum.data(), {p.spec().shape, home->gradient_type}};
}

void Homes::free_gradient(const Parameter& p) {
  if (Home* const home = at(p)) home->sum = {};
}

void Homes::forget() noexcept {
  try {
    end_tape();
    while (!leaving_.empty()) wait_for_first();
  } catch (...) {
    wait_quietly(device_);
    wait_quietly(link_);
    leaving_.clear();
    leaving_bytes_ = 0;
  }
  for (Home& home : homes_) {
    home.sum = {};
    home.gradient = {};
    home.fetched.clear();
  }
}

void Homes::load(Parameter& p) {
  const Tensor data(p.home.spec(), device_, {.name = p.name, .purpose = p.purpose()});
  Stream& in = link_.begin_in();
  enqueue_whole(in, [&] {
    in.copy_in(data.view().data(), p.home.view().data(), data.nbytes());
    device_.wait(in.record());
  });
  p.data = data;
}

void Homes::store(Parameter& p) {
  const Tensor data = std::exchange(p.data, Tensor::on_host(p.name));
  Stream& out = link_.begin_out();
  enqueue_whole(out, [&] {
    out.copy_out(p.home.view().data(), data.view().data(), data.nbytes());
    device_.wait(out.record());
  });
}

void Homes::begin_micro_batch(bool first, bool last) {
  is_first_ = first;
  is_last_ = last;
}

void Homes::begin_tape(bool is_planned) {
  is_planned_ = is_planned;
  in_backward_ = false;
  next_fetch_ = 0;
}

void Homes::before_forward(NodeId id) {
  if (!is_planned_) return release_unread();
  for (Unit& unit : units_) {
    if (unit.has_data && unit.planned->last < id && !unit.planned->stays) release(unit);
  }
  for (; next_fetch_ < forward_.size() && forward_[next_fetch_].node <= id; ++next_fetch_) {
    Unit& unit = *forward_[next_fetch_].unit;
    const bool all = unit.planned->all_in_forward;
    fetch(unit, /*data=*/true, /*sums=*/all, /*state=*/all && is_last_ && updates_);
  }
}

void Homes::begin_backward(NodeId nodes) {
  in_backward_ = true;
  next_fetch_ = 0;
  if (!is_planned_) return;
  for (Unit& unit : units_) {
    if (unit.has_data && unit.planned->last < nodes && !unit.planned->stays) release(unit);
  }
  before_backward(nodes);
}

void Homes::before_backward(NodeId id) {
  if (!is_planned_) return release_unread();
  for (Unit& unit : units_) {
    if (unit.has_data && unit.planned->first > id) release(unit);
  }
  for (; next_fetch_ < backward_.size() && backward_[next_fetch_].node >= id; ++next_fetch_) {
    Unit& unit = *backward_[next_fetch_].unit;
    fetch(unit, unit.planned->in_backward, /*sums=*/true, /*state=*/is_last_ && updates_);
  }
}

void Homes::end_tape() noexcept {
  for (Unit& unit : units_) {
    wait_in_any_case(unit);
    release(unit);
    unit.is_read = unit.has_sums = unit.has_state = false;
  }
  is_planned_ = in_backward_ = false;
}

// Of a tape without a plan: what the node before has not read, unless it comes next.
void Homes::release_unread() {
  const auto last_read = std::ranges::find_if(units_.rbegin(), units_.rend(), &Unit::is_read);
  if (last_read == units_.rend()) return;
  for (Unit& unit : units_) {
    if (!std::exchange(unit.is_read, false)) release(unit);
  }
  if (in_backward_ || last_read == units_.rbegin()) return;
  const auto after = std::find_if(last_read.base(), units_.end(),
                                  [](const Unit& u) { return u.planned->parameters_away; });
  if (after != units_.end()) fetch(*after, /*data=*/true, /*sums=*/false, /*state=*/false);
}

void Homes::fetch(Unit& unit, bool data, bool sums, bool state) {
  const bool brings = data && unit.planned->parameters_away && !unit.has_data;
  const bool adds = sums && !is_first_ && !unit.has_sums && unit.planned->gradients_away;
  const bool updates = state && !unit.has_state;
  try {
    if (brings || adds || updates) copy_in(unit, brings, adds, updates);
  } catch (...) {  // no copy is running
    if (brings) unit.data = {};
    for (Home* home : unit.homes) {
      if (adds) home->gradient = {};
      if (updates) home->fetched.clear();
    }
    throw;
  }
  unit.has_data = unit.has_data || brings;
  unit.has_sums = unit.has_sums || adds;
  unit.has_state = unit.has_state || updates;
}

void Homes::wait_for(Unit& unit) {
  if (unit.is_waited_for) return;
  device_.wait(unit.arrived);
  unit.is_waited_for = true;
}

// Before its memory is freed: the copies into it have to be over.
void Homes::wait_in_any_case(Unit& unit) noexcept {
  try {
    wait_for(unit);
  } catch (...) {
    wait_quietly(link_);
    unit.is_waited_for = true;
  }
}

void Homes::release(Unit& unit) {
  if (!std::exchange(unit.has_data, false)) return;
  wait_in_any_case(unit);
  unit.data = {};
  for (const Home* home : unit.homes) {
    home->parameter->data = Tensor::on_host(home->parameter->name);
  }
}

void Homes::need(const Parameter& p) {
  Unit& unit = unit_of(p);
  unit.is_read = true;
  fetch(unit, /*data=*/true, /*sums=*/false, /*state=*/false);
  wait_for(unit);
  for (const Home* home : unit.homes) {
    home->parameter->data = unit.data.part(home->at, home->parameter->spec());
  }
}

void Homes::need_gradient(const Parameter& p) {
  Home* const home = at(p);
  if (!home || !home->gradient_away || is_first_) return;
  Unit& unit = unit_of(p);
  fetch(unit, /*data=*/false, /*sums=*/true, /*state=*/false);
  if (!home->gradient) return;
  wait_for(unit);
  for (Home* one : unit.homes) {
    if (one->gradient) one->parameter->grad = std::exchange(one->gradient, {});
  }
}

void Homes::begin_backward() {
  if (is_last_ && user_) user_->begin_final();
}

void Homes::is_final(Parameter& p) {
  Home* const home = at(p);
  if (!home || !user_) return;
  if (!p.grad) need_gradient(p);  // of earlier micro-batches, if this one adds nothing
  const bool updates = updates_ && is_last_;
  if (p.grad && (updates || home->gradient_away)) {
    if (is_last_) user_->measure(p);
    updates ? update(*home) : send_gradient(*home);
    p.grad = {};
    limit_leaving();
  }
  if (!home->fetched.empty()) wait_for(unit_of(p));
  home->fetched.clear();
}

}  // namespace spool
