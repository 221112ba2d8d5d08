#pragma once

// An Arena divides one range of memory: a stream-ordered, best-fit, coalescing allocator.  Every
// device uses this code, the meta device included, so that a rehearsal rounds, reuses and fragments
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
#include <string>
#include <utility>
#include <vector>

#include "spool/runtime/memory/label.h"
#include "spool/runtime/shape.h"

namespace spool {

class AllocationLog;
class PlacedStep;

// Bytes of an arena, in whole granules.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;  // highest end so far
  size_t capacity = 0;
  EnumArray<Purpose, size_t> live_by = {};
  EnumArray<Purpose, size_t> at_peak_by = {};  // live_by when the peak was reached
  uint64_t live_hash = 0;                      // of the offsets and sizes of the live blocks
  // Bytes of tensors over memory that is not the arena's (Tensor::over), outside of the budget.
  size_t external = 0, external_peak = 0;
};

class Arena {
 public:
  static constexpr size_t granule = 512;  // bytes
  struct Block;
  struct Frame;

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

  // Tells the log and the placed step, if any, that a phase of the work begins.
  void begin_phase(size_t phase);

  // Records allocations, frees and phases; null: nothing does.
  AllocationLog* log() const { return log_; }
  void set_log(AllocationLog* log) { log_ = log; }

  // Allocations so far.
  size_t allocations() const { return allocations_; }

  // Places allocations from now on; null: best fit does.
  PlacedStep* placed_step() const { return placed_step_; }
  void set_placed_step(PlacedStep* step) { placed_step_ = step; }

  // The memory of a placed step: a block whose bytes count as live only once blocks are placed in
  // them.  It is freed when the frame has been closed and no block in it is live.
  Frame* open_frame(size_t bytes);
  void close(Frame*);
  // A block in the frame that overlaps no other.  `offset`: in the arena.
  Block* place(Frame&, size_t offset, size_t bytes);

  const MemoryStats& stats() const { return stats_; }
  // Counts the peak again from a time of these numbers; returns false, and does nothing, unless
  // the blocks of that time are live, and no others.
  bool count_again_from(const MemoryStats& then);
  // Most bytes live at a time since the last call.
  size_t take_max_live() { return std::exchange(max_live_, stats_.live); }

 private:
  void free_if_unused(const Frame*);
  void remove_placed(Block*);
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
  size_t allocations_ = 0;    // so far
  Block* last_ = nullptr;     // by offset
  std::vector<Block*> free_;  // by size, then offset; few, so cheaper than a tree
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> unused_;
  std::vector<std::unique_ptr<Frame>> frames_;
  AllocationLog* log_ = nullptr;
  PlacedStep* placed_step_ = nullptr;
};

}  // namespace spool
