#pragma once

// Copies between a device and its host that run beside the device's own work: two queues, one each
// way, and one slab of host memory, taken once and cut up by an allocator of its own, so that a
// rehearsal foretells its peak as it does the device's.
//
// Slots are handed out in program order, like memory of the device.  A slot may be let go once the
// compute stream has been told to wait for whatever was to read or write it: every copy waits for
// the compute stream first (begin_out, begin_in), so what a slot serves next comes after that.

#include <utility>

#include "spool/runtime/tensor.h"

namespace spool {

class HostLink;

// Some host memory of a link, given back when it goes.
class HostSlot {
 public:
  HostSlot() = default;
  HostSlot(HostLink& link, size_t bytes, const char* name);
  HostSlot(HostSlot&& from) noexcept
      : link_(std::exchange(from.link_, nullptr)), block_(from.block_), bytes_(from.bytes_) {}
  HostSlot& operator=(HostSlot&& from) noexcept {
    std::swap(link_, from.link_);
    std::swap(block_, from.block_);
    std::swap(bytes_, from.bytes_);
    return *this;
  }
  ~HostSlot();

  explicit operator bool() const { return link_ != nullptr; }
  std::byte* data() const;
  size_t bytes() const { return bytes_; }

 private:
  HostLink* link_ = nullptr;
  Arena::Block* block_ = nullptr;
  size_t bytes_ = 0;
};

class HostLink {
 public:
  static constexpr size_t alignment = 4096;  // bytes, of every slot

  // A slab of so many bytes.  Throws Error (memory) where the host has not as many.
  HostLink(Stream& compute, size_t bytes);

  Stream& compute() { return compute_; }
  // The queue of copies out of the device, or into it, which from here on waits for all that the
  // compute stream has been given so far.
  Stream& begin_out();
  Stream& begin_in();
  // The queues themselves.
  Stream& out() { return *out_; }
  Stream& in() { return *in_; }
  // A queue of the host's own processors over the slab: tensors made on it are memory of the host.
  // Nothing orders it with the other queues.
  std::unique_ptr<Stream> open_host() { return compute_.on_host(slab_); }
  // Until both queues are empty; throws what they have met.
  void synchronize();

  const MemoryStats& memory() const { return slab_->stats(); }

 private:
  friend class HostSlot;
  Arena::Block* take(size_t bytes, const char* name);
  void give_back(Arena::Block*);
  void tell_trace() {
    if (Trace* trace = compute_.trace()) [[unlikely]]
      trace->hold_host(this, memory().live);
  }

  Stream& compute_;
  std::shared_ptr<Arena> slab_;  // outlives the queues, whose last copies may be under way
  std::unique_ptr<Stream> out_, in_;
};

}  // namespace spool
