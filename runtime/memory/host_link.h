// Public: one of the headers of docs/public-headers.md.
#pragma once

// A HostLink copies between a device and its host while the device works.  It has two streams, one
// each way, and one slab of host memory, which is allocated once and divided by an arena of its
// own.  So a rehearsal predicts the slab's peak as it does the device's.
//
// Slots are allocated in program order, like device memory.  A slot may be freed once the
// compute stream's wait() has been called for every copy that reads or writes it: each copy first
// waits for the compute stream (begin_out, begin_in), so the slot's next use comes later.  Work
// that fails before it has called that wait() frees neither slots nor device memory of its copies
// until synchronize() has returned or thrown.

#include <span>
#include <utility>

#include "spool/runtime/tensor.h"

namespace spool {

class HostLink;

// Waits for all of the streams, even those that have failed; then rethrows the first error.
void synchronize_all(std::span<Stream* const>);

// An allocation in a link's slab, freed by its destructor.
class HostSlot {
 public:
  HostSlot() = default;
  HostSlot(HostLink& link, size_t bytes, Name name, Purpose = Purpose::activation);
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
  static constexpr size_t alignment = 4096;  // of every slot, in bytes

  // Allocates a slab of `bytes`.  Throws Error (memory) if the host has less.
  HostLink(Stream& compute, size_t bytes);
  // Copies on these streams, side streams of `compute`.
  HostLink(Stream& compute, size_t bytes, std::unique_ptr<Stream> out, std::unique_ptr<Stream> in);
  // Waits for the compute stream, whose graphs may have copies in them.
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  Stream& compute() { return compute_; }
  // Makes the stream of copies out of the device, or into it, wait for all work enqueued on the
  // compute stream so far; returns it.
  Stream& begin_out();
  Stream& begin_in();
  // The same streams without a wait.
  Stream& out() { return *out_; }
  Stream& in() { return *in_; }
  // Opens a stream of the host's processors whose tensors are in the slab.  It is not ordered with
  // the other streams.
  std::unique_ptr<Stream> open_host() { return compute_.on_host(slab_); }
  // Waits for both streams, even if one has failed; then rethrows the first error.
  void synchronize();

  const MemoryStats& memory() const { return slab_->stats(); }

 private:
  friend class HostSlot;
  Arena::Block* allocate(size_t bytes, const Label&);
  void free(Arena::Block*);
  void trace_live_bytes() {
    if (Trace* trace = compute_.trace()) [[unlikely]]
      trace->set_host_live(this, memory().live);
  }

  Stream& compute_;
  std::shared_ptr<Arena> slab_;  // outlives the streams, whose last copies may still run
  std::unique_ptr<Stream> out_, in_;
};

}  // namespace spool
