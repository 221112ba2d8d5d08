#include "spool/models/optimizers/offloaded_adamw.h"

#include <algorithm>
#include <utility>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

std::vector<Range> parts_on_host(const std::vector<Parameter*>& parameters,
                                 const std::vector<int64_t>& on_device) {
  std::vector<Range> parts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parts.push_back({on_device[i], parameters[i]->data.numel()});
  }
  return parts;
}

}  // namespace

OffloadedAdamW::OffloadedAdamW(std::vector<Parameter*> parameters, bool masters, HostLink& link,
                               const std::vector<int64_t>& on_device)
    : parameters_(std::move(parameters)),
      link_(link),
      device_(link.compute()),
      host_(link.open_host()),
      queues_{host_.get(), &link.out(), &link.in()},
      buckets_(parts_on_host(parameters_, on_device)),
      m_(host_row(DType::f32, "optimizer m")),
      v_(host_row(DType::f32, "optimizer v")),
      master_(masters ? host_row(DType::f32, "optimizer masters") : Tensor()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shape& shape = parameters_[i]->data.shape();
    const int64_t begin = buckets_.begin_of(i);
    const auto tensor_of = [&](const Tensor& row) {
      if (on_device[i] > 0) return Tensor();
      return row.slice({begin, begin + shape.numel()}).reshape(shape);
    };
    state_.m.push_back(tensor_of(m_));
    state_.v.push_back(tensor_of(v_));
    if (master_) state_.masters.push_back(tensor_of(master_));
  }
}

Tensor OffloadedAdamW::host_row(DType type, Name name) {
  return Tensor({Shape{buckets_.elements()}, type}, *host_,
                {.name = name, .purpose = Purpose::optimizer});
}

void OffloadedAdamW::initialise() {
  device_.synchronize();  // a step may be running
  for (const Tensor& row : {m_, v_, master_}) {
    if (row) launch(Fill{.out = row}, *host_);
  }
  host_->synchronize();
  half_updated_ = false;
}

void OffloadedAdamW::wait_quietly() noexcept {
  const auto wait = [](Stream& stream) {
    try {
      stream.synchronize();
    } catch (...) {
    }
  };
  wait(device_);  // a graph that it replays has the copies in it
  for (Stream* stream : queues_) wait(*stream);
}

bool OffloadedAdamW::has_gradient(const Buckets::Bucket& bucket,
                                  const std::vector<AdamW::Entry>& whole) {
  return std::ranges::any_of(
      bucket.slices, [&](const Buckets::Slice& slice) { return bool(whole[slice.tensor].grad); });
}

}  // namespace spool
