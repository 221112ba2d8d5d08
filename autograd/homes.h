// Public: one of the headers of docs/public-headers.md.
#pragma once

// Parameters and gradients that live in host memory, in the units of a plan (plan.h), such as the
// blocks of a model.  What lives there is copied to the device where it is needed, and its device
// memory is freed afterwards:
//   parameters   while nodes of their unit run, in forward and again in backward
//   gradients    formed in backward, and copied out as soon as they are final; the next micro-batch
//                copies the sums in again to add to them, and the optimizer finds them on the host
//   state        of parameters that are updated in backward, as soon as their gradients are final:
//                copied in before, and out with them
//
// A tape whose plan has units copies at the nodes that the plan says.  Any other tape, as of an
// evaluation, copies a unit where one of its parameters is first read, and the next unit ahead.
//
// Everything is ordered by positions on the compute stream, as in offload.h: what is copied in is
// waited for where it is first used, and what is copied out is freed when more is on its way than
// Plan::units_leaving units send.  So the peak does not depend on any speed.

#include <deque>
#include <vector>

#include "spool/autograd/gradient_sink.h"
#include "spool/autograd/parameters.h"
#include "spool/autograd/plan.h"
#include "spool/runtime/memory/host_link.h"

namespace spool {

// What uses gradients before the end of backward: an optimizer.
class GradientUser {
 public:
  GradientUser() = default;
  virtual ~GradientUser() = default;
  GradientUser(const GradientUser&) = delete;
  GradientUser& operator=(const GradientUser&) = delete;

  // Backward begins that completes the gradients of a step.
  virtual void begin_final() = 0;
  // Notes what the gradient, which is final, adds to the norm of all.
  virtual void measure(const Parameter&) = 0;
  // The parameter's state in host memory, by rows; empty if it has none there.
  virtual std::vector<View> state_on_host(const Parameter&) const = 0;
  // Updates the parameter, whose gradient is final and measured, and all of its state.
  // `fetched`: state_on_host(), on the device.
  virtual void update(const Parameter&, const std::vector<Tensor>& fetched) = 0;
};

class Homes final : public GradientSink {
 public:
  // Gives the parameters of the plan's units their homes in the link's memory.  Those that live
  // there and have no data get it by initialise(), or from a file.  All must outlive this.
  // `micro_batches`: of a step, whose gradients add up.
  Homes(Parameters&, HostLink&, const Plan&, int64_t micro_batches);
  // Waits for all copies.  The parameters have no data afterwards.
  ~Homes() override;

  // Before any step.
  void set_user(GradientUser*);
  bool updates_in_backward() const { return updates_; }
  // Whether its gradients live on the host; and whether they or its data do, and so all of its
  // state, too.
  bool has_gradient(const Parameter& p) const { return at(p) && at(p)->gradient_away; }
  bool is_away(const Parameter& p) const { return p.home || has_gradient(p); }
  // On the host; absent if there is none.
  View gradient(const Parameter&) const;
  bool has_sum(const Parameter& p) const { return at(p) && at(p)->sum; }
  void free_gradient(const Parameter&);
  // Frees all of a step, after waiting for its copies: it has failed, or is over.
  void forget() noexcept;

  // The data on the device, and back into its home.  Waits for nothing on the host.
  void load(Parameter&);
  void store(Parameter&);

  // Waits for the device, and so for copies into homes that it has waited for, as after a step.
  void synchronize() { device_.synchronize(); }

  // Called by the step before a micro-batch, the first or the last of a step.
  void begin_micro_batch(bool first, bool last);

  // Called by tapes: once, with whether the plan's positions are those of the tape; before a node
  // runs or is deferred; before backward; before a node's backward; and at the end.
  void begin_tape(bool is_planned);
  void before_forward(NodeId);
  void begin_backward(NodeId nodes);
  void before_backward(NodeId);
  void end_tape() noexcept;
  // For a parameter that is read: has its data on the device.
  void need(const Parameter&);
  // For one whose gradient is added to: has what earlier micro-batches have added up.
  void need_gradient(const Parameter&);

  void begin_backward() override;
  void is_final(Parameter&) override;
  void end_backward() override;

 private:
  struct Home {
    Parameter* parameter = nullptr;
    bool gradient_away = false;
    DType gradient_type = DType::f32;
    size_t at = 0;                     // byte of the unit's data
    HostSlot sum = {};                 // the gradient, of the micro-batches so far
    std::vector<View> state = {};      // on the host, of what is updated in backward
    Tensor gradient = {};              // on the device, or on its way there
    std::vector<Tensor> fetched = {};  // state
  };
  struct Unit {
    const PlannedUnit* planned = nullptr;
    std::vector<Home*> homes = {};
    // The parameters one after another: i8, on the host and on the device.
    Tensor home = {}, data = {};
    bool has_data = false, has_sums = false, has_state = false;  // on the device
    bool is_waited_for = true, is_read = false;
    Event arrived = {};
    size_t leaving_bytes = 0;  // of all that it sends
  };
  struct Leaving {
    std::vector<Tensor> tensors = {};
    size_t rows = 0;                // of state, the first of them
    size_t bytes = 0, of_unit = 0;  // its own, and all that its unit sends
    Event gone = {};
  };
  struct Fetch {
    NodeId node = 0;
    Unit* unit = nullptr;
  };

  const Home* at(const Parameter&) const;
  Home* at(const Parameter& p) { return const_cast<Home*>(std::as_const(*this).at(p)); }
  Unit& unit_of(const Parameter& p) { return *of_[*p.number].second; }
  void add_unit(const PlannedUnit&);
  void leave() noexcept;
  void fetch(Unit&, bool data, bool sums, bool state);
  void copy_in(Unit&, bool data, bool sums, bool state);
  void wait_for(Unit&);
  void wait_in_any_case(Unit&) noexcept;
  void release(Unit&);
  void release_unread();
  void send(const Unit&, Leaving, const std::vector<View>& to, const char* task);
  void send_gradient(Home&);
  void update(Home&);
  void limit_leaving();
  void wait_for_first();

  Parameters& parameters_;
  HostLink& link_;
  Stream& device_;
  std::unique_ptr<Stream> host_;
  int64_t micro_batches_;
  bool updates_;
  double units_leaving_;
  std::vector<PlannedUnit> planned_;
  std::vector<std::pair<Home*, Unit*>> of_;  // of each parameter, by its number
  std::deque<Home> homes_;
  std::deque<Unit> units_;
  std::vector<Fetch> forward_, backward_;  // in the order in which nodes come
  size_t next_fetch_ = 0;
  std::deque<Leaving> leaving_;
  size_t leaving_bytes_ = 0, usual_bytes_ = 0;  // of all that is on its way, of what a unit sends
  bool is_planned_ = false, in_backward_ = false, is_first_ = true, is_last_ = true;
  GradientUser* user_ = nullptr;
};

// The parameter's data, on the device.
inline const Tensor& data_of(const Parameter& p) {
  if (!p.data && p.homes) [[unlikely]]
    p.homes->need(p);
  return p.data;
}

}  // namespace spool
