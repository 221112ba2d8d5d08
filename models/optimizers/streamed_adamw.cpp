#include "spool/models/optimizers/streamed_adamw.h"

#include <algorithm>
#include <array>

#include "spool/kernels/elementwise.h"

namespace spool {

void StreamedAdamW::initialise() {
  OffloadedAdamW::initialise();
  if (!master_) return;
  const Tensor memory({Shape{buckets_.bucket_elements()}}, device_,
                      {.name = "optimizer bucket", .purpose = Purpose::optimizer});
  enqueue_whole([&] {
    for (const Buckets::Bucket& bucket : buckets_.all()) copy_masters(memory, bucket);
  });
}

void StreamedAdamW::copy_masters(const Tensor& memory, const Buckets::Bucket& bucket) {
  for (const Buckets::Slice& slice : bucket.slices) {
    launch(Cast{.out = slice_of(memory, slice.at, slice.elements.size()),
                .in = slice_of(parameters_[slice.tensor]->data, slice.elements)},
           device_);
  }
  Stream& out = link_.begin_out();
  for (const Buckets::Slice& slice : bucket.slices) {
    const View from = slice_of(memory, slice.at, slice.elements.size());
    const View to = slice_of(master_, bucket.elements.begin + slice.at, slice.elements.size());
    out.copy_out(to.data(), from.data(), from.nbytes());
  }
  device_.wait(out.record());
}

void StreamedAdamW::launch_on(const Tensor& memory, const Buckets::Bucket& bucket,
                              const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  launch_in_lists(
      kernel, bucket.slices,
      [&](const Buckets::Slice& slice) {
        const Range in_bucket{slice.at, slice.at + slice.elements.size()};
        AdamW::Entry entry = slice_of(whole[slice.tensor], slice.elements);
        entry.m = row_of(memory, 0, in_bucket);
        entry.v = row_of(memory, 1, in_bucket);
        if (master_) entry.master = row_of(memory, 2, in_bucket);
        return entry;
      },
      [&](const AdamW& k) { launch(k, device_); });
  // Gradients are freed with their last slice.
  for (const Buckets::Slice& slice : bucket.slices) {
    Parameter& p = *parameters_[slice.tensor];
    if (slice.elements.end == p.data.numel()) p.grad = {};
  }
}

void StreamedAdamW::update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Tensor, in_flight> memory;
  const size_t sets = std::min(in_flight, buckets_.all().size());
  for (size_t i = 0; i < sets; ++i) memory[i] = make_bucket();
  enqueue_update([&] { enqueue_buckets(memory, kernel, whole); });
}

void StreamedAdamW::enqueue_buckets(const std::array<Tensor, in_flight>& memory,
                                    const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Event, in_flight> copied_out;
  Stream &in = link_.begin_in(), &out = link_.out();
  size_t begun = 0;  // buckets
  for (const Buckets::Bucket& bucket : buckets_.all()) {
    if (!has_gradient(bucket, whole)) continue;
    const size_t i = begun++ % in_flight;
    in.wait(copied_out[i]);
    for_each_row(memory[i], bucket, [&](const View& device, const View& host) {
      in.copy_in(device.data(), host.data(), host.nbytes());
    });
    device_.wait(in.record());
    launch_on(memory[i], bucket, kernel, whole);
    link_.begin_out();
    for_each_row(memory[i], bucket, [&](const View& device, const View& host) {
      out.copy_out(host.data(), device.data(), host.nbytes());
    });
    copied_out[i] = out.record();
  }
  if (begun > 0) device_.wait(copied_out[(begun - 1) % in_flight]);
}

}  // namespace spool
