#include "spool/models/offloaded_adamw.h"

#include <algorithm>
#include <array>
#include <utility>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

std::vector<int64_t> numels(const std::vector<Parameter*>& parameters) {
  std::vector<int64_t> all;
  for (const Parameter* p : parameters) all.push_back(p->data.numel());
  return all;
}

// Some elements, of what may be absent.
View part(const View& whole, Range elements) {
  if (!whole) return {};
  const Spec spec{Shape{elements.size()}, whole.dtype()};
  return {whole.data() + static_cast<size_t>(elements.begin) * size_of(spec.dtype), spec};
}

View part(const View& row, int64_t begin, int64_t count) {
  return part(row, {begin, begin + count});
}

AdamW::Entry part(const AdamW::Entry& whole, Range elements) {
  AdamW::Entry entry = whole;
  for (View* v : {&entry.parameter, &entry.master, &entry.m, &entry.v, &entry.grad}) {
    *v = part(*v, elements);
  }
  entry.first = elements.begin;
  return entry;
}

// Hands the kernel on, with entry_of(slice) of each slice that has a gradient, in as many lists as
// it takes.
template <class EntryOf, class Launch>
void in_lists(const AdamW& kernel, const std::vector<Buckets::Slice>& slices,
              const EntryOf& entry_of, const Launch& launch_list) {
  AdamW k = kernel;
  for (const Buckets::Slice& slice : slices) {
    const AdamW::Entry entry = entry_of(slice);
    if (!entry.grad) continue;
    if (k.tensors.full()) {
      launch_list(k);
      k.tensors = {};
    }
    k.tensors.add(entry);
  }
  if (k.tensors.size() > 0) launch_list(k);
}

}  // namespace

OffloadedAdamW::OffloadedAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link)
    : parameters_(std::move(parameters)),
      link_(link),
      device_(link.compute()),
      host_(link.open_host()),
      buckets_(numels(parameters_)),
      m_(host_row(DType::f32, "optimizer m")),
      v_(host_row(DType::f32, "optimizer v")),
      master_(masters ? host_row(DType::f32, "optimizer masters") : Tensor()) {}

Tensor OffloadedAdamW::host_row(DType type, const char* name) {
  return Tensor({Shape{buckets_.elements()}, type}, *host_,
                {.name = name, .purpose = Purpose::optimizer});
}

std::vector<Tensor> OffloadedAdamW::by_parameter(const Tensor& row) const {
  std::vector<Tensor> all;
  if (!row) return all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shape& shape = parameters_[i]->data.shape();
    const int64_t begin = buckets_.begin_of(i);
    all.push_back(row.slice({begin, begin + shape.numel()}).reshape(shape));
  }
  return all;
}

void OffloadedAdamW::initialise() {
  device_.synchronize();  // until no step is under way
  for (const Tensor& row : {m_, v_, master_}) {
    if (row) launch(Fill{.out = row}, *host_);
  }
  host_->synchronize();
}

bool OffloadedAdamW::wanted(const Buckets::Bucket& bucket,
                            const std::vector<AdamW::Entry>& whole) {
  return std::ranges::any_of(bucket.slices, [&](const Buckets::Slice& slice) {
    return bool(whole[slice.tensor].grad);
  });
}

namespace {

class StreamedAdamW final : public OffloadedAdamW {
 public:
  StreamedAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link)
      : OffloadedAdamW(std::move(parameters), masters, link) {
    for (const Tensor& row : {m_, v_, master_}) {
      if (row) rows_.push_back(row);
    }
    settle();
  }
  void initialise() override;
  void update(const AdamW&, const std::vector<AdamW::Entry>&) override;

 private:
  // A bucket of every row on the device.
  Tensor make_bucket() {
    const auto rows = static_cast<int64_t>(rows_.size());
    return Tensor({Shape{rows, buckets_.bucket_elements()}}, device_,
                  {.name = "optimizer bucket", .purpose = Purpose::optimizer});
  }
  // copy(device, host) for each row of a bucket.
  template <class Copy>
  void for_each_row(const Tensor& memory, const Buckets::Bucket& bucket, const Copy& copy) const {
    for (size_t row = 0; row < rows_.size(); ++row) {
      copy(row_of(memory, row, {0, bucket.elements.size()}), part(rows_[row], bucket.elements));
    }
  }
  View row_of(const Tensor& memory, size_t row, Range elements) const {
    return part(memory, static_cast<int64_t>(row) * buckets_.bucket_elements() + elements.begin,
                elements.size());
  }
  void launch_on(const Tensor& memory, const Buckets::Bucket&, const AdamW&,
                 const std::vector<AdamW::Entry>&);

  std::vector<Tensor> rows_;  // m, v, and the masters where there are any
};

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

class CpuAdamW final : public OffloadedAdamW {
 public:
  CpuAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link)
      : OffloadedAdamW(std::move(parameters), masters, link), work_(device_.beside()) {
    const auto make = [&](const Shape& shape, DType type) {
      return Tensor({shape, type}, *host_,
                    {.name = "optimizer scalars", .purpose = Purpose::optimizer});
    };
    parameter_ = host_row(parameters_.front()->data.dtype(), "parameters on the host");
    schedule_ = make({3}, DType::f32);
    clip_ = make({3}, DType::f32);
    random_ = make({4}, DType::i32);
    settle();
  }
  void initialise() override;
  void update(const AdamW&, const std::vector<AdamW::Entry>&) override;

 private:
  View parameter_of(size_t tensor) const {
    return part(parameter_, buckets_.begin_of(tensor), parameters_[tensor]->data.numel());
  }
  AdamW fetch_scalars(const AdamW&);
  void copy_gradients(const Buckets::Bucket&, const HostSlot&, const std::vector<AdamW::Entry>&);
  void update_on_host(const Buckets::Bucket&, const HostSlot&, const AdamW&,
                      const std::vector<AdamW::Entry>&);
  void copy_parameters(const Buckets::Bucket&, const std::vector<AdamW::Entry>&);

  std::unique_ptr<Stream> work_;  // the host's
  // On the host: the parameters, so that they travel one way only, and what a step is told.
  Tensor parameter_, schedule_, clip_, random_;
};

void CpuAdamW::initialise() {
  OffloadedAdamW::initialise();
  launch(Fill{.out = parameter_}, *host_);
  host_->synchronize();
  Stream& out = link_.begin_out();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const View from = parameters_[i]->data;
    out.copy_out(parameter_of(i).data(), from.data(), from.nbytes());
  }
  out.synchronize();
  if (master_) launch(Cast{.out = master_, .in = parameter_}, *host_);
  host_->synchronize();
}

// The kernel with what it reads besides tensors on the host.
AdamW CpuAdamW::fetch_scalars(const AdamW& kernel) {
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

// Where a slice's gradient lies on the host.
View staged(const HostSlot& slot, const Buckets::Slice& slice, DType type) {
  return {slot.data() + static_cast<size_t>(slice.at) * sizeof(float),
          {Shape{slice.elements.size()}, type}};
}

void CpuAdamW::copy_gradients(const Buckets::Bucket& bucket, const HostSlot& slot,
                              const std::vector<AdamW::Entry>& whole) {
  for (const Buckets::Slice& slice : bucket.slices) {
    const View from = part(whole[slice.tensor].grad, slice.elements);
    if (!from) continue;
    link_.out().copy_out(staged(slot, slice, from.dtype()).data(), from.data(), from.nbytes());
  }
}

void CpuAdamW::update_on_host(const Buckets::Bucket& bucket, const HostSlot& slot,
                              const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  in_lists(
      kernel, bucket.slices,
      [&](const Buckets::Slice& slice) {
        AdamW::Entry entry = part(whole[slice.tensor], slice.elements);
        entry.parameter = part(parameter_of(slice.tensor), slice.elements);
        if (entry.grad) entry.grad = staged(slot, slice, entry.grad.dtype());
        return entry;
      },
      [&](const AdamW& k) { launch_on_host(k, *host_, *work_); });
}

void CpuAdamW::copy_parameters(const Buckets::Bucket& bucket,
                               const std::vector<AdamW::Entry>& whole) {
  for (const Buckets::Slice& slice : bucket.slices) {
    if (!whole[slice.tensor].grad) continue;
    const View to = part(whole[slice.tensor].parameter, slice.elements);
    const View from = part(parameter_of(slice.tensor), slice.elements);
    link_.in().copy_in(to.data(), from.data(), from.nbytes());
  }
}

void CpuAdamW::update(const AdamW& kernel, const std::vector<AdamW::Entry>& whole) {
  const size_t bytes = static_cast<size_t>(buckets_.bucket_elements()) * sizeof(float);
  std::array<HostSlot, in_flight> gradients;
  std::array<Event, in_flight> used;
  const size_t most = std::min(in_flight, buckets_.all().size());
  for (size_t i = 0; i < most; ++i) gradients[i] = HostSlot(link_, bytes, "gradients on the host");
  Stream &out = link_.begin_out(), &in = link_.begin_in();
  const AdamW on_host = fetch_scalars(kernel);
  size_t turn = 0;
  for (const Buckets::Bucket& bucket : buckets_.all()) {
    if (!wanted(bucket, whole)) continue;
    const size_t i = turn++ % in_flight;
    out.wait(used[i]);
    copy_gradients(bucket, gradients[i], whole);
    work_->wait(out.record());
    update_on_host(bucket, gradients[i], on_host, whole);
    used[i] = work_->record();
    in.wait(used[i]);
    copy_parameters(bucket, whole);
  }
  device_.wait(out.record());
  device_.wait(in.record());
}

}  // namespace

std::unique_ptr<OffloadedAdamW> make_offloaded_adamw(OptimizerState state,
                                                     std::vector<Parameter*> parameters,
                                                     bool masters, HostLink& link) {
  if (state == OptimizerState::cpu) {
    return std::make_unique<CpuAdamW>(std::move(parameters), masters, link);
  }
  return std::make_unique<StreamedAdamW>(std::move(parameters), masters, link);
}

}  // namespace spool
