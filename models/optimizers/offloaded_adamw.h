#pragma once

// AdamW whose state is in memory of the host, as three rows, m, v and the masters, in the order of
// the parameters.  A step goes through them bucket by bucket (buckets.h), three of which are on
// their way at a time: one comes, one is worked on, one goes.  What orders them is events; the host
// never waits.  A step begins after all that the device has been given, and what the device is
// given next waits for its end.
//
//   streamed  state in -> the device updates -> state out
//   cpu       gradients out -> the host updates -> parameters in

#include <memory>
#include <vector>

#include "spool/autograd/plan.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/buckets.h"
#include "spool/runtime/memory/host_link.h"

namespace spool {

class OffloadedAdamW {
 public:
  virtual ~OffloadedAdamW() = default;

  // Tensors of the host, parallel to the parameters.  They may be read and written when all work of
  // the device is done.
  std::vector<Tensor> first_moments() const { return by_parameter(m_); }
  std::vector<Tensor> second_moments() const { return by_parameter(v_); }
  std::vector<Tensor> masters() const { return by_parameter(master_); }

  // Moments zero; masters, and what else the host has of the parameters, from the parameters.
  virtual void initialise();
  // Until all that was asked of the host is done, and what was written to the tensors above is
  // there; throws what the host has met.
  virtual void synchronize() {
    host_->synchronize();
    link_.synchronize();
  }
  // The step of `kernel`, which has no tensors, on `whole`, one entry for each parameter; those
  // without a gradient are left alone.
  virtual void update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) = 0;

 protected:
  static constexpr size_t in_flight = 3;  // buckets

  OffloadedAdamW(std::vector<Parameter*>, bool masters, HostLink&);
  Tensor host_row(DType, const char* name);
  std::vector<Tensor> by_parameter(const Tensor& row) const;
  static bool wanted(const Buckets::Bucket&, const std::vector<AdamW::Entry>&);

  std::vector<Parameter*> parameters_;
  HostLink& link_;
  Stream& device_;
  std::unique_ptr<Stream> host_;
  Buckets buckets_;
  Tensor m_, v_, master_;  // on the host; f32 (elements of the row); master_ may be absent
};

}  // namespace spool
