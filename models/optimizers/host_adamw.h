// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// AdamW whose state is on the host and updated by the host: each bucket of gradients is copied to
// the host, and the updated parameters are copied back.  The host has its own copy of the
// parameters, so that they are copied one way only.  If the gradients are not finite, the
// parameters are copied back unchanged.

#include <array>

#include "spool/models/optimizers/adamw_slices.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

class HostAdamW final : public OffloadedAdamW {
 public:
  HostAdamW(const std::vector<Parameter*>& parameters, bool masters, HostLink& link)
      : OffloadedAdamW(parameters, masters, link, std::vector<int64_t>(parameters.size())),
        work_(device_.side_stream()) {
    queues_.push_back(work_.get());
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

 private:
  View parameter_of(size_t tensor) const {
    return slice_of(parameter_, buckets_.begin_of(tensor), parameters_[tensor]->data.numel());
  }
  AdamW fetch_scalars(const AdamW&);
  void copy_gradients(const Buckets::Bucket&, const HostSlot&, const std::vector<AdamW::Entry>&);
  void update_on_host(const Buckets::Bucket&, const HostSlot&, const AdamW&,
                      const std::vector<AdamW::Entry>&);
  void enqueue_buckets(const std::array<HostSlot, in_flight>& gradients, const AdamW&,
                       const std::vector<AdamW::Entry>&);
  void copy_parameters(const Buckets::Bucket&, const std::vector<AdamW::Entry>&);

  // On the host: one row of all parameters, and a step's scalars.
  Tensor parameter_, schedule_, clip_, random_;
  std::unique_ptr<Stream> work_;  // the host's updates
};

}  // namespace spool
