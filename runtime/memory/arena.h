#pragma once

// One range of memory, divided by a stream-ordered, best-fit, coalescing allocator.  Every device
// uses this code, the meta device included, so that a rehearsal rounds, reuses and fragments
// exactly as the device does.
//
// Invariants: blocks start and end on granules; blocks, free or not, tile [0, end), and the last
// one is not free; the tail above is used only if no free block is large enough.  So an address
// depends only on the live blocks, not on the capacity or on freed blocks, and every step allocates
// as the first did.  The peak is the highest end so far, and an arena of exactly that capacity
// suffices for the same sequence of calls.  Not thread-safe: allocation happens on one thread, in
// program order.
//
// Repeated work can have its allocations placed in advance instead (layout.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spool/runtime/memory/label.h"
#include "spool/runtime/shape.h"

namespace spool {

class AllocationLog;
class LifetimeRecorder;
class PeakRecorder;
class PlacedStep;
class Repetition;

// Bytes of an arena, in whole granules.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;  // highest end so far
  size_t capacity = 0;
  EnumArray<Purpose, size_t> live_by = {};
  EnumArray<Purpose, size_t> at_peak_by = {};  // live_by when the peak was reached
  uint64_t live_hash = 0;                      // of the offsets and sizes of the live blocks
  // Bytes of tensors over memory that is not the arena's (Tensor::over): no budget has them.
  size_t external = 0, external_peak = 0;
};

class Arena {
 public:
  static constexpr size_t granule = 512;  // bytes
  struct Block;

  // Divides [base, base + capacity); sizes are rounded up to `multiple` bytes.  Never touches the
  // memory.
  Arena(std::byte* base, size_t capacity, std::string device, size_t multiple = Arena::granule);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Throws Error (memory) that names the tensor, the live bytes, and the capacity that it needs.
  Block* allocate(const Spec&, const Label&);
  void free(Block*);
  std::byte* address(const Block*) const;

  // Counts memory that is not the arena's.
  void count_external(size_t bytes) {
    stats_.external += bytes;
    stats_.external_peak = std::max(stats_.external_peak, stats_.external);
  }
  void count_external_freed(size_t bytes) { stats_.external -= bytes; }

  // Tells the LifetimeRecorder and the PlacedStep, if any, that a phase of the work begins.
  void begin_phase(size_t phase);

  // Null if nobody asks what is live at the peak.
  PeakRecorder* peak_recorder() const { return peak_recorder_; }

  // Null if nobody asks for every allocation.
  AllocationLog* allocation_log() const { return allocation_log_; }

  const MemoryStats& stats() const { return stats_; }
  // Most bytes live at a time since the last call.
  size_t take_max_live() { return std::exchange(max_live_, stats_.live); }

 private:
  friend class AllocationLog;
  friend class LifetimeRecorder;
  friend class PeakRecorder;
  friend class PlacedStep;
  friend class Repetition;

  // The memory of a PlacedStep: a block of the arena, and the live blocks that were placed in it.
  // Closed when the step ends, and freed once nothing in it is live.
  struct Slab {
    Block* whole = nullptr;           // null for a layout of no bytes
    std::vector<Block*> placed = {};  // by offset
    bool open = true;
  };
  Slab* open_slab(size_t bytes);
  void close(Slab*);
  void free_if_unused(const Slab*);
  Block* place_next(size_t bytes, const Spec&, const Label&);
  Block* place(Slab&, size_t offset, size_t bytes);
  void remove_placed(Block*);
  static const Block* overlapping(const Slab&, size_t offset, size_t bytes);
  static std::optional<Name> name_of_live(const Slab&);

  Block* fit(size_t bytes, const Spec&, const Label&);
  Block* take_free(size_t bytes);
  Block* append(size_t bytes);
  void split(Block*, size_t bytes);
  Block* insert_after(Block* previous, size_t offset, size_t bytes);
  Block* unused_block();
  void coalesce(Block*);
  void absorb_next(Block*);
  void return_to_tail(Block*);
  void add_free(Block*);
  void remove_free(Block*);
  void count_live(const Block&);
  void count_freed(const Block&);
  void update_peak();
  [[noreturn]] void fail_to_fit(size_t bytes, const Spec&, const Label&) const;

  std::byte* base_;
  std::string device_;
  size_t granule_;
  MemoryStats stats_;
  size_t end_ = 0, live_at_peak_ = 0, max_live_ = 0;
  Block* last_ = nullptr;     // by offset
  std::vector<Block*> free_;  // by size, then offset; few, so cheaper than a tree
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> unused_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  LifetimeRecorder* recorder_ = nullptr;
  PeakRecorder* peak_recorder_ = nullptr;
  AllocationLog* allocation_log_ = nullptr;
  PlacedStep* placed_step_ = nullptr;
};

}  // namespace spool
