#pragma once

// The optimizer's state on the host, updated by the host: each bucket of gradients goes to it, and
// the parameters that it makes of them come back.  The host has parameters of its own, so that they
// travel one way only.  Where the gradients are not finite, what comes back is what was there.

#include "spool/models/optimizers/adamw_slices.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

class CpuAdamW final : public OffloadedAdamW {
 public:
  CpuAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link)
      : OffloadedAdamW(std::move(parameters), masters, link), work_(device_.side_stream()) {
    const auto make = [&](const Shape& shape, DType type) {
      return Tensor({shape, type}, *host_,
                    {.name = "optimizer scalars", .purpose = Purpose::optimizer});
    };
    parameter_ = host_row(parameters_.front()->data.dtype(), "parameters on the host");
    schedule_ = make({3}, DType::f32);
    clip_ = make({3}, DType::f32);
    random_ = make({4}, DType::i32);
    host_->synchronize();
  }
  void initialise() override;
  void update(const AdamW&, const std::vector<AdamW::Entry>&) override;
  void synchronize() override {
    OffloadedAdamW::synchronize();
    work_->synchronize();
  }

 private:
  View parameter_of(size_t tensor) const {
    return part(parameter_, buckets_.begin_of(tensor), parameters_[tensor]->data.numel());
  }
  AdamW fetch_scalars(const AdamW&);
  void copy_gradients(const Buckets::Bucket&, const HostSlot&, const std::vector<AdamW::Entry>&);
  void update_on_host(const Buckets::Bucket&, const HostSlot&, const AdamW&,
                      const std::vector<AdamW::Entry>&);
  void copy_parameters(const Buckets::Bucket&, const std::vector<AdamW::Entry>&);

  // On the host: the parameters, so that they travel one way only, and what a step is told.
  Tensor parameter_, schedule_, clip_, random_;
  std::unique_ptr<Stream> work_;  // the host's
};

}  // namespace spool
