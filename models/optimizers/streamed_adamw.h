#pragma once

// AdamW whose state is on the host and updated by the device: each bucket of state is copied in,
// updated by the same kernel as state on the device, and copied out.  A step takes device memory
// for three buckets; a gradient is freed after its last slice is used.

#include <array>

#include "spool/models/optimizers/adamw_slices.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

class StreamedAdamW final : public OffloadedAdamW {
 public:
  StreamedAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link)
      : OffloadedAdamW(std::move(parameters), masters, link) {
    for (const Tensor& row : {m_, v_, master_}) {
      if (row) rows_.push_back(row);
    }
    synchronize();
  }
  void initialise() override;
  void update(const AdamW&, const std::vector<AdamW::Entry>&) override;

 private:
  // Device memory for one bucket of every row: f32 (rows, bucket elements).
  Tensor make_bucket() {
    const auto rows = static_cast<int64_t>(rows_.size());
    return Tensor({Shape{rows, buckets_.bucket_elements()}}, device_,
                  {.name = "optimizer bucket", .purpose = Purpose::optimizer});
  }
  // Calls copy(device, host) for each row of a bucket.
  template <class Copy>
  void for_each_row(const Tensor& memory, const Buckets::Bucket& bucket, const Copy& copy) const {
    for (size_t row = 0; row < rows_.size(); ++row) {
      copy(row_of(memory, row, {0, bucket.elements.size()}), slice_of(rows_[row], bucket.elements));
    }
  }
  View row_of(const Tensor& memory, size_t row, Range elements) const {
    return slice_of(memory, static_cast<int64_t>(row) * buckets_.bucket_elements() + elements.begin,
                    elements.size());
  }
  void copy_masters(const Tensor& memory, const Buckets::Bucket&);
  void enqueue_buckets(const std::array<Tensor, in_flight>& memory, const AdamW&,
                       const std::vector<AdamW::Entry>&);
  void launch_on(const Tensor& memory, const Buckets::Bucket&, const AdamW&,
                 const std::vector<AdamW::Entry>&);

  std::vector<Tensor> rows_;  // m, v, and the masters where there are any
};

}  // namespace spool
