#pragma once

// One reservation of memory, cut up by a stream-ordered, best-fit, coalescing allocator.  The same
// code serves every device, the meta device included, so that a rehearsal rounds, reuses and
// fragments exactly as the device will.
//
// Invariants: every block starts and ends on a granule; blocks, free or not, tile [0, end), and the
// last of them is not free; the tail above is used only where no free block is large enough.  So
// where a block is placed depends on the blocks that are held, not on the capacity, nor on what was
// held before: every step of a run goes as the first one did.  The peak is the highest end there
// was, and an arena of exactly that capacity suffices for the same sequence of calls.  Not
// thread-safe: allocation happens on one thread, in program order.
//
// A stretch of work that is repeated can be placed in advance instead (layout.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/shape.h"

namespace spool {

// What memory is held for; the table before step 0 and errors speak in these terms.
enum class Purpose : uint8_t { parameter, gradient, optimizer, activation, workspace, input };
constexpr size_t purpose_count = 6;
const char* name(Purpose);

// Who holds a block.  The name lives forever: a literal, or intern(text).
struct Label {
  const char* name = "tensor";
  Purpose purpose = Purpose::activation;
};
const char* intern(std::string_view text);

class LifetimeRecorder;
class PlacedStep;

// Bytes as the arena counts them, in whole granules.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;  // the high-water offset
  size_t capacity = 0;
  std::array<size_t, purpose_count> live_by = {};     // by purpose
  std::array<size_t, purpose_count> at_peak_by = {};  // the most held while the end was there
  uint64_t placement = 0;                             // a hash of where what is held lies
};

class Arena {
 public:
  static constexpr size_t granule = 512;  // bytes
  struct Block;

  // Cuts up [base, base + capacity) into multiples of so many bytes.  Never touches the memory.
  Arena(std::byte* base, size_t capacity, std::string device, size_t multiple = Arena::granule);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Throws Error (memory) that names the tensor, who holds the rest, and what would fit.
  Block* allocate(const Spec&, const Label&);
  void free(Block*);
  std::byte* address(const Block*) const;

  // Tells who records or replays this arena, if anyone does, that a phase of the work begins.
  void begin_phase(size_t phase);

  const MemoryStats& stats() const { return stats_; }

 private:
  friend class LifetimeRecorder;
  friend class PlacedStep;
  // One block, and others that a PlacedStep has put in it.
  struct Slab {
    Block* whole = nullptr;
    std::vector<Block*> held = {};  // by offset
    bool open = true;
  };
  Slab* open_slab(size_t bytes);
  Block* put(Slab&, size_t offset, size_t bytes);
  void remove(Block*);
  void close(Slab*);
  void let_go(const Slab*);
  static const Block* overlapping(const Slab&, size_t offset, size_t bytes);
  static const char* name_of_held(const Slab&);

  Block* reserve(size_t bytes, const Spec&, const Label&);
  Block* replay(size_t bytes, const Spec&, const Label&);
  void put_back(Block*);
  Block* take(size_t bytes);
  Block* append(size_t bytes);
  void cut(Block*, size_t bytes);
  void absorb_next(Block*);
  Block* make(size_t offset, size_t bytes, Block* previous);
  Block* unused();
  void give_up(Block*);
  void list(Block*);
  void unlist(Block*);
  void count_in(const Block&);
  void count_out(const Block&);
  void note_peak();
  [[noreturn]] void refuse(size_t bytes, const Spec&, const Label&) const;

  std::byte* base_;
  std::string device_;
  size_t granule_;
  MemoryStats stats_;
  size_t end_ = 0, live_at_peak_ = 0;
  Block* last_ = nullptr;     // by offset
  std::vector<Block*> free_;  // by size, then offset: few, so cheaper than a tree
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> spare_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  LifetimeRecorder* recorder_ = nullptr;
  PlacedStep* placed_step_ = nullptr;
};

}  // namespace spool
