// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// AdamW whose state is in host memory: a row each of m, v and the masters, in the order of the
// parameters.  A part of streamed state may be on the device.  A step works bucket by bucket
// (buckets.h), with three in flight: one is copied in, one is updated, one is copied out.  Events
// order them; the calling thread never waits.  A step begins after all earlier work of the device,
// and later work of the device waits for its end.
//
//   streamed  state in -> the device updates -> state out
//   cpu       gradients out -> the host updates -> parameters in
//
// The memory that a step takes is allocated before anything is enqueued.  Work that fails to be
// enqueued halfway waits for its copies before their memory is freed.

#include <memory>
#include <vector>

#include "spool/autograd/plan.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/buckets.h"
#include "spool/runtime/memory/host_link.h"

namespace spool {

// Parallel to the parameters; no masters: empty.
struct AdamWState {
  std::vector<Tensor> m, v, masters;
};

class OffloadedAdamW {
 public:
  virtual ~OffloadedAdamW() = default;
  OffloadedAdamW(const OffloadedAdamW&) = delete;
  OffloadedAdamW& operator=(const OffloadedAdamW&) = delete;

  // The state, to be read and written until end_access().  Synchronize first.
  virtual const AdamWState& state() { return state_; }
  // Waits for the writes to state(); call it before each step.
  virtual void end_access() { synchronize(); }

  // Sets the moments to zero, and copies the parameters to the masters and to the host's own copy.
  virtual void initialise();
  // Waits for all work of the host and for writes to state(), even if some of it has failed; then
  // throws the first error.
  void synchronize() { synchronize_all(queues_); }
  // One step.  `kernel` has no tensors; `whole` has an entry for each parameter, and those without
  // a gradient do not change.
  virtual void update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) = 0;
  // Waits for all work of device and host, even if some of it has failed; errors are left to the
  // next call.
  void wait_quietly() noexcept;
  // Whether an update has failed after it began to change the state, and initialise() was not
  // called since.
  bool half_updated() const { return half_updated_; }

 protected:
  static constexpr size_t in_flight = 3;  // buckets

  // `on_device`: of each parameter, the first elements whose state is not on the host.
  OffloadedAdamW(std::vector<Parameter*>, bool masters, HostLink&,
                 const std::vector<int64_t>& on_device);
  Tensor host_row(DType, Name name);
  // Calls enqueue().  If it throws, waits for the copies that it has begun: the memory that they
  // use is about to be freed, and the compute stream has not waited for them.
  template <class Enqueue>
  void enqueue_whole(const Enqueue& enqueue) {
    try {
      enqueue();
    } catch (...) {
      wait_quietly();
      throw;
    }
  }
  template <class Enqueue>
  void enqueue_update(const Enqueue& enqueue) {
    half_updated_ = true;
    enqueue_whole(enqueue);
    half_updated_ = false;
  }
  static bool has_gradient(const Buckets::Bucket&, const std::vector<AdamW::Entry>&);

  std::vector<Parameter*> parameters_;
  HostLink& link_;
  Stream& device_;
  std::unique_ptr<Stream> host_;
  std::vector<Stream*> queues_;  // of the host's work and of the copies
  bool half_updated_ = false;
  Buckets buckets_;
  Tensor m_, v_, master_;  // on the host; f32 (buckets_.elements()); master_ may be absent
  AdamWState state_;       // of parameters that are divided, absent
};

}  // namespace spool
