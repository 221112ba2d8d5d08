#include "spool/models/optimizers/streamed_adamw.h"

#include <algorithm>
#include <cstring>

#include "spool/kernels/elementwise.h"
#include "spool/runtime/integer.h"

namespace spool {

namespace {

std::vector<Range> first_parts(const std::vector<int64_t>& elements) {
  std::vector<Range> parts;
  for (const int64_t n : elements) parts.push_back({0, n});
  return parts;
}

}  // namespace

StreamedAdamW::StreamedAdamW(const std::vector<Parameter*>& parameters, bool masters,
                             HostLink& link, std::vector<int64_t> on_device)
    : OffloadedAdamW(parameters, masters, link, on_device),
      on_device_(std::move(on_device)),
      share_buckets_(first_parts(on_device_)) {
  for (const Tensor& row : {m_, v_, master_}) {
    if (row) rows_.push_back(row);
  }
  allocate_share();
  synchronize();
}

std::vector<std::vector<Tensor>*> StreamedAdamW::rows_of_state() {
  std::vector<std::vector<Tensor>*> all{&state_.m, &state_.v};
  if (master_) all.push_back(&state_.masters);
  return all;
}

void StreamedAdamW::allocate_share() {
  const auto state = rows_of_state();
  share_.resize(rows_.size(), std::vector<Tensor>(parameters_.size()));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = *parameters_[i];
    if (on_device_[i] == 0) continue;
    const bool whole = on_device_[i] == p.data.numel();
    if (!whole) divided_ = i;
    const Spec spec{whole ? p.data.shape() : Shape{on_device_[i]}, DType::f32};
    for (size_t row = 0; row < rows_.size(); ++row) {
      share_[row][i] = Tensor(spec, device_, {.name = p.name, .purpose = Purpose::optimizer});
      if (whole) (*state[row])[i] = share_[row][i];
    }
  }
}

void StreamedAdamW::initialise() {
  close_access();
  OffloadedAdamW::initialise();
  initialise_share();
  if (!master_) return;
  const Tensor memory({Shape{buckets_.bucket_elements()}}, device_,
                      {.name = "optimizer bucket", .purpose = Purpose::optimizer});
  enqueue_whole([&] {
    for (const Buckets::Bucket& bucket : buckets_.all()) copy_masters(memory, bucket);
  });
}

void StreamedAdamW::initialise_share() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (on_device_[i] == 0) continue;
    launch(Fill{.out = share_[0][i]}, device_);
    launch(Fill{.out = share_[1][i]}, device_);
    if (!master_) continue;
    const Tensor& master = share_[2][i];
    const View from = slice_of(parameters_[i]->data, 0, on_device_[i]);
    launch(Cast{.out = slice_of(master, 0, on_device_[i]), .in = from}, device_);
  }
}

template <class Copy>
void StreamedAdamW::for_each_joined(const Copy& copy) const {
  if (device_.device().type == DeviceType::meta) return;
  const int64_t begin = buckets_.begin_of(*divided_);
  for (size_t row = 0; row < rows_.size(); ++row) {
    const Tensor& front = share_[row][*divided_];
    const int64_t others = parameters_[*divided_]->data.numel() - on_device_[*divided_];
    copy(joined_->rows[row].view().data(), front, slice_of(rows_[row], begin, others));
  }
}

const AdamWState& StreamedAdamW::state() {
  if (divided_ && !is_accessed_) join();
  is_accessed_ = true;
  return state_;
}

void StreamedAdamW::join() {
  const Spec spec{parameters_[*divided_]->data.shape(), DType::f32};
  if (!joined_) {
    const size_t each = round_up(spec.nbytes(), HostLink::alignment);
    auto joined = std::make_unique<Joined>(device_, rows_.size() * each);
    for (size_t row = 0; row < rows_.size(); ++row) joined->rows.emplace_back(spec, *joined->host);
    joined->host->synchronize();
    joined_ = std::move(joined);
  }
  for_each_joined([](std::byte* whole, const Tensor& front, const View& back) {
    read_bytes(front, 0, {whole, front.nbytes()});
    std::memcpy(whole + front.nbytes(), back.data(), back.nbytes());
  });
  const auto state = rows_of_state();
  for (size_t row = 0; row < rows_.size(); ++row) (*state[row])[*divided_] = joined_->rows[row];
}

void StreamedAdamW::end_access() {
  synchronize();
  if (divided_ && is_accessed_) {
    joined_->host->synchronize();
    for_each_joined([](const std::byte* whole, const Tensor& front, const View& back) {
      write_bytes(front, 0, {whole, front.nbytes()});
      std::memcpy(back.data(), whole + front.nbytes(), back.nbytes());
    });
  }
  close_access();
}

// The joined memory stays where a caller has still a tensor of it.
void StreamedAdamW::close_access() {
  is_accessed_ = false;
  if (!joined_) return;
  for (std::vector<Tensor>* row : rows_of_state()) (*row)[*divided_] = {};
  if (std::ranges::all_of(joined_->rows, &Tensor::sole_owner)) joined_.reset();
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
  free_used_gradients(bucket);
}

void StreamedAdamW::launch_on_share(const Buckets::Bucket& bucket, const AdamW& kernel,
                                    const std::vector<AdamW::Entry>& whole) {
  launch_in_lists(
      kernel, bucket.slices,
      [&](const Buckets::Slice& slice) {
        AdamW::Entry entry = slice_of(whole[slice.tensor], slice.elements);
        entry.m = slice_of(share_[0][slice.tensor], slice.elements);
        entry.v = slice_of(share_[1][slice.tensor], slice.elements);
        if (master_) entry.master = slice_of(share_[2][slice.tensor], slice.elements);
        return entry;
      },
      [&](const AdamW& k) { launch(k, device_); });
  free_used_gradients(bucket);
}

void StreamedAdamW::free_used_gradients(const Buckets::Bucket& bucket) {
  for (const Buckets::Slice& slice : bucket.slices) {
    int64_t& unused = unused_[slice.tensor];
    unused -= slice.elements.size();
    if (unused == 0) parameters_[slice.tensor]->grad = {};
  }
}

void StreamedAdamW::update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Tensor, in_flight> memory;
  const size_t sets = std::min(in_flight, buckets_.all().size());
  for (size_t i = 0; i < sets; ++i) memory[i] = make_bucket();
  unused_.clear();
  for (const Parameter* p : parameters_) unused_.push_back(p->data.numel());
  enqueue_update([&] { enqueue_buckets(memory, kernel, whole); });
}

void StreamedAdamW::enqueue_buckets(const std::array<Tensor, in_flight>& memory,
                                    const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  std::array<Event, in_flight> copied_out;
  Stream &in = link_.begin_in(), &out = link_.out();
  const auto &all = buckets_.all(), &share = share_buckets_.all();
  size_t begun = 0, updated = 0;  // buckets; of the share
  for (size_t n = 0; n < all.size(); ++n) {
    // While the bucket is copied in, a part of the share is updated.
    for (const size_t end = share.size() * (n + 1) / all.size(); updated < end; ++updated) {
      launch_on_share(share[updated], kernel, whole);
    }
    const Buckets::Bucket& bucket = all[n];
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
