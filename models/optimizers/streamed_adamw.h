// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// AdamW whose state is on the host and updated by the device: each bucket of state is copied in,
// updated by the same kernel as state on the device, and copied out.  A step takes device memory
// for three buckets of m, v and the masters: three eighths of the state on the host, and at most
// 144 MiB.  A gradient is freed after its last slice is used.
//
// A share of the state may stay on the device (state_share.h).  It is updated in parts, while the
// buckets are copied.  At most one parameter is divided, the first elements of its state on the
// device and the others on the host.  While its state is read or written, the tensors for that are
// copies in memory of the host, apart from the link's.

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "spool/models/optimizers/adamw_slices.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

class StreamedAdamW final : public OffloadedAdamW {
 public:
  // `on_device`: of each parameter, the first elements whose state stays on the device; not all of
  // every parameter.
  StreamedAdamW(const std::vector<Parameter*>& parameters, bool masters, HostLink&,
                std::vector<int64_t> on_device);
  // The state that was handed out goes before the memory it may be in.
  ~StreamedAdamW() override { state_ = {}; }
  void initialise() override;
  void update(const AdamW&, const std::vector<AdamW::Entry>&) override;
  const AdamWState& state() override;
  void end_access() override;

 private:
  // A copy of the divided parameter's state.
  struct Joined {
    HostLink memory;
    std::unique_ptr<Stream> host;
    std::vector<Tensor> rows = {};  // m, v, masters
    Joined(Stream& device, size_t bytes) : memory(device, bytes), host(memory.open_host()) {}
  };

  void allocate_share();
  void initialise_share();
  std::vector<std::vector<Tensor>*> rows_of_state();
  void join();
  void close_access();
  // Calls copy(joined row, its first elements on the device, the others on the host).
  template <class Copy>
  void for_each_joined(const Copy&) const;
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
  void launch_on_share(const Buckets::Bucket&, const AdamW&, const std::vector<AdamW::Entry>&);
  void free_used_gradients(const Buckets::Bucket&);

  std::vector<Tensor> rows_;  // on the host: m, v, and the masters where there are any
  std::vector<int64_t> on_device_;
  Buckets share_buckets_;                   // of on_device_
  std::vector<std::vector<Tensor>> share_;  // m, v, masters on the device, or absent: by parameter
  std::optional<size_t> divided_;           // parameter
  std::unique_ptr<Joined> joined_;
  bool is_accessed_ = false;     // state() was called, and end_access() was not since
  std::vector<int64_t> unused_;  // during an update: elements of each parameter
};

}  // namespace spool
