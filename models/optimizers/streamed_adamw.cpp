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
  for (const Buckets::Bucket& bucket : buckets_.all()) {
    for (const Buckets::Slice& slice : bucket.slices) {
      launch(Cast{.out = part(memory, slice.at, slice.elements.size()),
                  .in = part(parameters_[slice.tensor]->data, slice.elements)},
             device_);
    }
    Stream& out = link_.begin_out();
    for (const Buckets::Slice& slice : bucket.slices) {
      const View from = part(memory, slice.at, slice.elements.size());
      const View to = part(master_, bucket.elements.begin + slice.at, slice.elements.size());
      out.copy_out(to.data(), from.data(), from.nbytes());
    }
    device_.wait(out.record());
  }
}

void StreamedAdamW::launch_on(const Tensor& memory, const Buckets::Bucket& bucket,
                              const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  in_lists(
      kernel, bucket.slices,
      [&](const Buckets::Slice& slice) {
        const Range there{slice.at, slice.at + slice.elements.size()};
        AdamW::Entry entry = part(whole[slice.tensor], slice.elements);
        entry.m = row_of(memory, 0, there);
        entry.v = row_of(memory, 1, there);
        if (master_) entry.master = row_of(memory, 2, there);
        return entry;
      },
      [&](const AdamW& k) { launch(k, device_); });
  // A gradient whose last slice this was is of no more use.
  for (const Buckets::Slice& slice : bucket.slices) {
    Parameter& p = *parameters_[slice.tensor];
    if (slice.elements.end == p.data.numel()) p.grad = {};
  }
}

void StreamedAdamW::update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Tensor, in_flight> memory;
  std::array<Event, in_flight> gone;
  const size_t most = std::min(in_flight, buckets_.all().size());
  for (size_t i = 0; i < most; ++i) memory[i] = make_bucket();
  Stream &in = link_.begin_in(), &out = link_.out();
  size_t turn = 0;
  for (const Buckets::Bucket& bucket : buckets_.all()) {
    if (!wanted(bucket, whole)) continue;
    const size_t i = turn++ % in_flight;
    in.wait(gone[i]);
    for_each_row(memory[i], bucket, [&](const View& device, const View& host) {
      in.copy_in(device.data(), host.data(), host.nbytes());
    });
    device_.wait(in.record());
    launch_on(memory[i], bucket, kernel, whole);
    link_.begin_out();
    for_each_row(memory[i], bucket, [&](const View& device, const View& host) {
      out.copy_out(host.data(), device.data(), host.nbytes());
    });
    gone[i] = out.record();
  }
  if (turn > 0) device_.wait(gone[(turn - 1) % in_flight]);
}

}  // namespace spool
