#pragma once

// Runs a step of a rule on all parameters, wherever their state lives (state_rows.h), in one loop
// over buckets (buckets.h).  With state on the host three buckets are in flight: one is copied in,
// one updated, one copied out; meanwhile the state on the device is updated in parts.  Events order
// them; the calling thread never waits.  A step begins after all earlier work of the device, whose
// later work waits for the end of the step.
//
//   device    the device updates
//   streamed  state in -> the device updates -> state out
//   cpu       gradients out -> the host updates -> parameters in
//
// The host has its own copy of the parameters that it updates, so they are copied one way only.  If
// the gradients are not finite, the parameters are copied back unchanged.
//
// A step allocates three buckets before it enqueues anything: of device memory with streamed state
// (three eighths of the state on the host, and at most 12 MiB per byte of an element's state), of
// host memory for gradients if the host updates.  A gradient that the device reads is freed after
// its last slice is used.

#include <array>
#include <vector>

#include "spool/models/optimizers/state_rows.h"

namespace spool {

class UpdateLoop {
 public:
  // The references must outlive the loop, which is destroyed after its work.  `scheduled`: how many
  // numbers of the rule change from step to step.
  UpdateLoop(const UpdateRule&, const std::vector<Parameter*>&, std::vector<ParameterRate>,
             StateRows&, int64_t scheduled, Homes*);

  // Updates the parameters that have a gradient.
  void update(const UpdateStep::Scalars&);
  // In backward, updates one that has a gradient; `fetched` are the rows of part_on_host() on the
  // device.  update() then ends the step.
  void update_one(size_t parameter, const std::vector<Tensor>& fetched, const UpdateStep::Scalars&);
  // The part of the parameter whose state is on the host; null: none.
  const StateRows::Part* part_on_host(size_t parameter) const;
  // Whether an update has failed after it began to change the state.
  bool half_updated() const { return half_updated_; }
  // The state was initialised again.
  void forget_failure() { half_updated_ = false; }

 private:
  using Bucket = Buckets::Bucket;
  using Parts = std::vector<StateRows::Part>;
  static constexpr size_t in_flight = 3;
  // The memory of a bucket: of all rows of state on the device, with two more of parameters and
  // gradients that are away; or of gradients on the host.
  struct Slot {
    Tensor rows = {};
    HostSlot gradients = {};
    Event done = {};  // after the last use of the memory
  };
  using Slots = std::array<Slot, in_flight>;

  View gradient_of(size_t parameter, Range elements) const;
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
  void tell_owner(const Bucket&, int64_t begin, Stream& by) const;
  void free_used_gradients(const Bucket&, const Parts&);
  View row_of(const Tensor& memory, size_t row, Range elements) const;
  View extra_row_of(const Tensor& memory, bool of_gradients, const Buckets::Slice&,
                    DType type) const;
  size_t bytes_of_gradients() const;
  void place_in(const Slot&, const Buckets::Slice&, UpdateEntry&) const;
  template <class Copy>
  void for_each_away(const Bucket&, const Slot&, const Copy&) const;

  const UpdateRule& rule_;
  const std::vector<Parameter*>& parameters_;
  std::vector<ParameterRate> rates_;
  std::vector<uint32_t> numbers_;  // of each parameter, for random bits
  StateRows& state_;
  Stream& device_;
  Homes* homes_;
  Buckets here_;                     // of the state on the device
  std::vector<size_t> row_begins_;   // of each row in a slot, in bytes per element
  size_t element_bytes_ = 0;         // of all rows
  size_t parameter_bytes_ = 0;       // of one element, if anything may be away
  size_t gradient_bytes_ = 0;        // during an update, the most of those on the host
  Tensor schedule_, clip_, random_;  // the host's copies, if it updates
  std::vector<int64_t> unused_;      // during an update: remaining elements of each parameter
  bool half_updated_ = false;
};

}  // namespace spool
