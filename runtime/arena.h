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

// Bytes as the arena counts them, in whole granules.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;  // the high-water offset
  size_t capacity = 0;
  std::array<size_t, purpose_count> live_by = {};     // by purpose
  std::array<size_t, purpose_count> at_peak_by = {};  // when the peak was last raised
  uint64_t placement = 0;                             // a hash of where what is held lies
};

class Arena {
 public:
  static constexpr size_t granule = 512;  // bytes
  struct Block;

  // Cuts up [base, base + capacity).  Never touches the memory.
  Arena(std::byte* base, size_t capacity, std::string device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Throws Error (memory) that names the tensor, who holds the rest, and what would fit.
  Block* allocate(const Spec&, const Label&);
  void free(Block*);
  std::byte* address(const Block*) const;

  const MemoryStats& stats() const { return stats_; }

 private:
  Block* take(size_t bytes);
  Block* append(size_t bytes);
  void cut(Block*, size_t bytes);
  void absorb_next(Block*);
  Block* make(size_t offset, size_t bytes, Block* previous);
  void give_up(Block*);
  void list(Block*);
  void unlist(Block*);
  void count_in(const Block&);
  [[noreturn]] void refuse(size_t bytes, const Spec&, const Label&) const;

  std::byte* base_;
  std::string device_;
  MemoryStats stats_;
  size_t end_ = 0;
  Block* last_ = nullptr;     // by offset
  std::vector<Block*> free_;  // by size, then offset: few, so cheaper than a tree
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> spare_;
};

}  // namespace spool
