#include "spool/runtime/host_link.h"

namespace spool {
namespace {

int64_t aligned(size_t bytes) {
  return static_cast<int64_t>((bytes + HostLink::alignment - 1) / HostLink::alignment *
                              HostLink::alignment);
}

struct Slab {
  std::shared_ptr<std::byte> memory;
  Arena arena;
  Slab(Stream& device, size_t bytes)
      : memory(device.host_memory(bytes)), arena(memory.get(), bytes, "host") {}
};

std::shared_ptr<Arena> take_slab(Stream& device, size_t bytes) {
  auto owner = std::make_shared<Slab>(device, bytes);
  return {owner, &owner->arena};
}

}  // namespace

HostLink::HostLink(Stream& compute, size_t bytes)
    : compute_(compute),
      slab_(take_slab(compute, bytes)),
      out_(compute.beside()),
      in_(compute.beside()) {}

Stream& HostLink::begin_out() {
  out_->wait(compute_.record());
  return *out_;
}

Stream& HostLink::begin_in() {
  in_->wait(compute_.record());
  return *in_;
}

void HostLink::synchronize() {
  out_->synchronize();
  in_->synchronize();
}

HostSlot::HostSlot(HostLink& link, size_t bytes, const char* name)
    : link_(&link),
      block_(link.slab_->allocate(
          {Shape{std::max<int64_t>(aligned(bytes), HostLink::alignment) / 4}}, {.name = name})),
      bytes_(bytes) {}

HostSlot::~HostSlot() {
  if (link_) link_->slab_->free(block_);
}

std::byte* HostSlot::data() const { return link_->slab_->address(block_); }

}  // namespace spool
