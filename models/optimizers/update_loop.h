#pragma once

// A step of a rule on all parameters, wherever their state lives (state_rows.h): one loop over
// buckets (buckets.h).  With state on the host three buckets are in flight: one is copied in, one
// is updated, one is copied out, and what is on the device is updated in parts meanwhile.  Events
// order them; the calling thread never waits.  A step begins after all earlier work of the device,
// and later work of the device waits for its end.
//
//   device    the device updates
//   streamed  state in -> the device updates -> state out
//   cpu       gradients out -> the host updates -> parameters in
//
// The host has its own copy of the parameters that it updates, so that they are copied one way
// only.  If the gradients are not finite, the parameters are copied back unchanged.
//
// A step takes memory for three buckets: with streamed state three eighths of the state on the
// host, and at most 12 MiB for each byte of an element's state, of the device; if the host updates,
// of the gradients, on the host. It is allocated before anything is enqueued.  A gradient that the
// device reads is freed after its last slice is used.

#include <array>
#include <vector>

#include "spool/models/optimizers/state_rows.h"

namespace spool {

class UpdateLoop {
 public:
  // They outlive the loop, which is destroyed after its work.  `scheduled` numbers change from step
  // to step.
  UpdateLoop(const UpdateRule&, const std::vector<Parameter*>&, std::vector<ParameterRate>,
             StateRows&, int64_t scheduled);

  // Updates the parameters that have a gradient.
  void update(const UpdateStep::Scalars&);
  // Whether an update has failed after it began to change the state.
  bool half_updated() const { return half_updated_; }
  // The state was set anew.
  void forget_failure() { half_updated_ = false; }

 private:
  using Bucket = Buckets::Bucket;
  using Parts = std::vector<StateRows::Part>;
  static constexpr size_t in_flight = 3;
  // A bucket's memory: of all rows on the device, or of its gradients on the host.
  struct Slot {
    Tensor rows = {};
    HostSlot gradients = {};
    Event done = {};  // with the memory
  };
  using Slots = std::array<Slot, in_flight>;

  const Tensor& gradient_of(const StateRows::Part& part) const {
    return parameters_[part.range.parameter]->grad;
  }
  bool has_gradient(const Bucket&) const;
  // Empty without a gradient.  set_row(View&, row, slice) sets the state, by default that in place.
  template <class SetRow>
  UpdateEntry entry_of(const Buckets::Slice&, const Parts&, const SetRow&) const;
  UpdateEntry entry_of(const Buckets::Slice&, const Parts&) const;
  void allocate(Slots&) const;
  void enqueue(Slots&, const UpdateStep::Scalars&);
  UpdateStep::Scalars scalars_on_host(const UpdateStep::Scalars&);
  void update_here(const Bucket&, const UpdateStep::Scalars&);
  void stream(const Bucket&, Slot&, const UpdateStep::Scalars&);
  void update_on_host(const Bucket&, Slot&, const UpdateStep::Scalars& on_host);
  void free_used_gradients(const Bucket&, const Parts&);
  View row_of(const Tensor& memory, size_t row, Range elements) const;

  const UpdateRule& rule_;
  const std::vector<Parameter*>& parameters_;
  std::vector<ParameterRate> rates_;
  std::vector<uint32_t> numbers_;  // of each parameter, for random bits
  StateRows& state_;
  Stream& device_;
  Buckets here_;                     // on the device
  std::vector<size_t> row_begins_;   // of each row in a slot, in bytes for each element
  size_t element_bytes_ = 0;         // of all rows
  Tensor schedule_, clip_, random_;  // the host's, where it updates
  std::vector<int64_t> unused_;      // during an update: elements of each parameter
  bool half_updated_ = false;
};

}  // namespace spool
