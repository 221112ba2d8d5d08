#include "spool/runtime/memory/host_link.h"

namespace spool {
namespace {

struct Slab {
  std::shared_ptr<std::byte> memory;
  Arena arena;
  Slab(Stream& device, size_t bytes)
      : memory(device.host_memory(bytes)),
        arena(memory.get(), bytes, "host", HostLink::alignment) {}
};

std::shared_ptr<Arena> take_slab(Stream& device, size_t bytes) {
  auto owner = std::make_shared<Slab>(device, bytes);
  return {owner, &owner->arena};
}

}  // namespace

HostLink::HostLink(Stream& compute, size_t bytes)
    : compute_(compute),
      slab_(take_slab(compute, bytes)),
      out_(compute.side_stream()),
      in_(compute.side_stream()) {}

Stream& HostLink::begin_out() {
  out_->trace_with(compute_, TraceLane::copy_out);
  tell_trace();
  out_->wait(compute_.record());
  return *out_;
}

Stream& HostLink::begin_in() {
  in_->trace_with(compute_, TraceLane::copy_in);
  tell_trace();
  in_->wait(compute_.record());
  return *in_;
}

void HostLink::synchronize() {
  out_->synchronize();
  in_->synchronize();
}

Arena::Block* HostLink::take(size_t bytes, const char* name) {
  tell_trace();
  const auto pages = static_cast<int64_t>((bytes + alignment - 1) / alignment);
  Arena::Block* block = slab_->allocate({Shape{pages, alignment / sizeof(float)}}, {.name = name});
  tell_trace();
  return block;
}

void HostLink::give_back(Arena::Block* block) {
  tell_trace();
  slab_->free(block);
  tell_trace();
}

HostSlot::HostSlot(HostLink& link, size_t bytes, const char* name)
    : link_(&link), block_(link.take(bytes, name)), bytes_(bytes) {}

HostSlot::~HostSlot() {
  if (link_) link_->give_back(block_);
}

std::byte* HostSlot::data() const { return link_->slab_->address(block_); }

}  // namespace spool
