#include "spool/models/optimizers/host_adamw.h"

#include <algorithm>
#include <array>

#include "spool/kernels/elementwise.h"

namespace spool {

void HostAdamW::initialise() {
  OffloadedAdamW::initialise();
  launch(Fill{.out = parameter_}, *host_);
  host_->synchronize();
  enqueue_whole([&] {
    Stream& out = link_.begin_out();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const View from = parameters_[i]->data;
      out.copy_out(parameter_of(i).data(), from.data(), from.nbytes());
    }
    out.synchronize();
  });
  if (master_) launch(Cast{.out = master_, .in = parameter_}, *host_);
  host_->synchronize();
}

// The kernel with its scalars (schedule, clip, random) copied to the host.
AdamW HostAdamW::fetch_scalars(const AdamW& kernel) {
  AdamW k = kernel;
  const auto fetch = [&](View& from, const Tensor& to) {
    if (!from) return;
    link_.out().copy_out(to.view().data(), from.data(), to.nbytes());
    from = to;
  };
  fetch(k.schedule, schedule_);
  fetch(k.clip, clip_);
  fetch(k.random, random_);
  return k;
}

namespace {

// The copy of a slice's gradient in the slot.
View staged(const HostSlot& slot, const Buckets::Slice& slice, DType type) {
  return {slot.data() + static_cast<size_t>(slice.at) * sizeof(float),
          {Shape{slice.elements.size()}, type}};
}

}  // namespace

void HostAdamW::copy_gradients(const Buckets::Bucket& bucket, const HostSlot& slot,
                               const std::vector<AdamW::Entry>& whole) {
  for (const Buckets::Slice& slice : bucket.slices) {
    const View from = slice_of(whole[slice.tensor].grad, slice.elements);
    if (!from) continue;
    link_.out().copy_out(staged(slot, slice, from.dtype()).data(), from.data(), from.nbytes());
  }
}

void HostAdamW::update_on_host(const Buckets::Bucket& bucket, const HostSlot& slot,
                               const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  launch_in_lists(
      kernel, bucket.slices,
      [&](const Buckets::Slice& slice) {
        AdamW::Entry entry = slice_of(whole[slice.tensor], slice.elements);
        const int64_t at = bucket.elements.begin + slice.at, count = slice.elements.size();
        entry.parameter = slice_of(parameter_of(slice.tensor), slice.elements);
        entry.m = slice_of(m_, at, count);
        entry.v = slice_of(v_, at, count);
        if (master_) entry.master = slice_of(master_, at, count);
        if (entry.grad) entry.grad = staged(slot, slice, entry.grad.dtype());
        return entry;
      },
      [&](const AdamW& k) { launch_on_host(k, *host_, *work_); });
}

void HostAdamW::copy_parameters(const Buckets::Bucket& bucket,
                                const std::vector<AdamW::Entry>& whole) {
  for (const Buckets::Slice& slice : bucket.slices) {
    if (!whole[slice.tensor].grad) continue;
    const View to = slice_of(whole[slice.tensor].parameter, slice.elements);
    const View from = slice_of(parameter_of(slice.tensor), slice.elements);
    link_.in().copy_in(to.data(), from.data(), from.nbytes());
  }
}

void HostAdamW::update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  const size_t bytes = static_cast<size_t>(buckets_.bucket_elements()) * sizeof(float);
  std::array<HostSlot, in_flight> gradients;
  const size_t slots = std::min(in_flight, buckets_.all().size());
  for (size_t i = 0; i < slots; ++i) gradients[i] = HostSlot(link_, bytes, "gradients on the host");
  enqueue_update([&] { enqueue_buckets(gradients, kernel, whole); });
}

void HostAdamW::enqueue_buckets(const std::array<HostSlot, in_flight>& gradients,
                                const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Event, in_flight> updated;
  Stream &out = link_.begin_out(), &in = link_.begin_in();
  work_->trace_with(device_, TraceLane::update);
  const AdamW on_host = fetch_scalars(kernel);
  size_t begun = 0;  // buckets
  for (const Buckets::Bucket& bucket : buckets_.all()) {
    if (!has_gradient(bucket, whole)) continue;
    const size_t i = begun++ % in_flight;
    out.wait(updated[i]);
    copy_gradients(bucket, gradients[i], whole);
    work_->wait(out.record());
    update_on_host(bucket, gradients[i], on_host, whole);
    updated[i] = work_->record();
    in.wait(updated[i]);
    copy_parameters(bucket, whole);
  }
  device_.wait(out.record());
  device_.wait(in.record());
}

}  // namespace spool
