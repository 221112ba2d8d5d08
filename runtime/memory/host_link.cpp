#include "spool/runtime/memory/host_link.h"

#include <array>
#include <exception>

#include "spool/runtime/integer.h"

namespace spool {
namespace {

struct HostArena {
  std::shared_ptr<std::byte> memory;
  Arena arena;
  HostArena(Stream& device, size_t bytes)
      : memory(device.host_memory(bytes)),
        arena(memory.get(), bytes, "host", HostLink::alignment) {}
};

std::shared_ptr<Arena> allocate_host_arena(Stream& device, size_t bytes) {
  auto owner = std::make_shared<HostArena>(device, bytes);
  return {owner, &owner->arena};
}

}  // namespace

void synchronize_all(std::span<Stream* const> streams) {
  std::exception_ptr first;
  for (Stream* stream : streams) {
    try {
      stream->synchronize();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

HostLink::HostLink(Stream& compute, size_t bytes)
    : HostLink(compute, bytes, compute.side_stream(), compute.side_stream()) {}

HostLink::HostLink(Stream& compute, size_t bytes, std::unique_ptr<Stream> out,
                   std::unique_ptr<Stream> in)
    : compute_(compute),
      slab_(allocate_host_arena(compute, bytes)),
      out_(std::move(out)),
      in_(std::move(in)) {}

HostLink::~HostLink() {
  try {
    compute_.synchronize();
  } catch (...) {
  }
}

Stream& HostLink::begin_out() {
  out_->trace_with(compute_, TraceLane::copy_out);
  trace_live_bytes();
  out_->wait(compute_.record());
  return *out_;
}

Stream& HostLink::begin_in() {
  in_->trace_with(compute_, TraceLane::copy_in);
  trace_live_bytes();
  in_->wait(compute_.record());
  return *in_;
}

void HostLink::synchronize() {
  const std::array both{out_.get(), in_.get()};
  synchronize_all(both);
}

Arena::Block* HostLink::allocate(size_t bytes, const Label& label) {
  trace_live_bytes();
  const auto pages = static_cast<int64_t>(ceil_div(bytes, alignment));
  Arena::Block* block = slab_->allocate({Shape{pages, alignment / sizeof(float)}}, label);
  trace_live_bytes();
  return block;
}

void HostLink::free(Arena::Block* block) {
  trace_live_bytes();
  slab_->free(block);
  trace_live_bytes();
}

HostSlot::HostSlot(HostLink& link, size_t bytes, Name name, Purpose purpose)
    : link_(&link),
      block_(link.allocate(bytes, {.name = name, .purpose = purpose})),
      bytes_(bytes) {}

HostSlot::~HostSlot() {
  if (link_) link_->free(block_);
}

std::byte* HostSlot::data() const { return link_->slab_->address(block_); }

}  // namespace spool
