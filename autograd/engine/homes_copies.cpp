// The copies of parameters, gradients and state to the device and back to their homes.

#include <algorithm>
#include <utility>

#include "spool/autograd/homes.h"
#include "spool/runtime/memory/enqueue_whole.h"

namespace spool {

namespace {

// What a trace calls a copy to the device.
const char* task_of(Purpose purpose) {
  return purpose == Purpose::gradient    ? "gradients in"
         : purpose == Purpose::optimizer ? "state"
                                         : "parameters in";
}

}  // namespace

void Homes::copy_in(Unit& unit, bool data, bool sums, bool state) {
  struct Copy {
    Tensor to;
    const std::byte* from;
    Purpose purpose;
  };
  std::vector<Copy> copies;
  const auto copy_of = [&](const Parameter& p, const Spec& spec, Purpose purpose,
                           const std::byte* from) {
    const Tensor to(spec, device_, {.name = p.name, .purpose = purpose});
    copies.push_back({to, from, purpose});
    return to;
  };
  if (data) {
    const Parameter& first = *unit.homes.front()->parameter;
    unit.data = copy_of(first, unit.home.spec(), first.purpose(), unit.home.view().data());
  }
  for (Home* home : unit.homes) {
    const Parameter& p = *home->parameter;
    if (const View sum = sums && home->gradient_away ? gradient(p) : View()) {
      home->gradient = copy_of(p, sum.spec(), Purpose::gradient, sum.data());
    }
    for (size_t row = 0; state && row < home->state.size(); ++row) {
      const View& from = home->state[row];
      home->fetched.push_back(copy_of(p, from.spec(), Purpose::optimizer, from.data()));
    }
  }
  if (copies.empty()) return;
  Stream& in = link_.begin_in();
  enqueue_whole(in, [&] {
    for (const auto& [to, from, purpose] : copies) {
      const TraceScope scope(device_.trace(), task_of(purpose));
      in.copy_in(to.view().data(), from, to.nbytes());
    }
    unit.arrived = in.record();
  });
  unit.is_waited_for = false;
}

// The memory must outlive what has been enqueued of the copies.
void Homes::send(const Unit& unit, Leaving leaving, const std::vector<View>& to, const char* task) {
  if (to.empty()) return;
  Stream& out = link_.begin_out();
  enqueue_whole(out, [&] {
    for (size_t i = 0; i < to.size(); ++i) {
      const TraceScope scope(device_.trace(), i < leaving.rows ? "state" : task);
      out.copy_out(to[i].data(), leaving.tensors[i].view().data(), to[i].nbytes());
      leaving.bytes += to[i].nbytes();
    }
    leaving.gone = out.record();
  });
  leaving.of_unit = unit.leaving_bytes;
  leaving_bytes_ += leaving.bytes;
  leaving_.push_back(std::move(leaving));
}

void Homes::send_gradient(Home& home) {
  const Tensor& gradient = home.parameter->grad;
  home.gradient_type = gradient.dtype();
  if (!home.sum)
    home.sum = HostSlot(link_, gradient.nbytes(), home.parameter->name, Purpose::gradient);
  send(unit_of(*home.parameter), {.tensors = {gradient}}, {View(home.sum.data(), gradient.spec())},
       "gradients out");
}

// Parameter and state leave in place of the gradient.
void Homes::update(Home& home) {
  Parameter& p = *home.parameter;
  Unit& unit = unit_of(p);
  if (p.home && !p.data) need(p);
  wait_for(unit);
  {
    const TraceScope scope(device_.trace(), "update");
    user_->update(p, home.fetched);
  }
  home.sum = {};
  Leaving leaving{.tensors = home.fetched, .rows = home.fetched.size()};
  std::vector<View> to = home.state;
  if (p.home) {
    leaving.tensors.push_back(p.data);
    to.push_back(p.home);
  }
  send(unit, std::move(leaving), to, "parameters out");
}

// Frees what has left, until no more is on its way than so many units send; what one sends that is
// larger than most may be on its way together.
void Homes::limit_leaving() {
  auto max = static_cast<size_t>(static_cast<double>(usual_bytes_) * units_leaving_);
  for (const Leaving& one : leaving_) {
    if (one.of_unit > usual_bytes_ && units_leaving_ > 0) max = std::max(max, one.of_unit);
  }
  while (!leaving_.empty() && leaving_bytes_ > max) wait_for_first();
}

void Homes::wait_for_first() {
  device_.wait(leaving_.front().gone);
  leaving_bytes_ -= leaving_.front().bytes;
  leaving_.pop_front();
}

void Homes::end_backward() {
  while (!leaving_.empty()) wait_for_first();
}

}  // namespace spool
