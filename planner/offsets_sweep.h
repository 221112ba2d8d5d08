#pragma once

// Places blocks whose lifetimes are known into so many bytes of memory, in a sweep through time
// that looks at free memory only.
//
// A block goes to one end of the free memory: to the one where it breaks up no stack.  Values that
// forward saves are freed by backward in reverse, and gradients live until the optimizer; each kind
// is a stack, but the two cross, since a gradient is born after a saved value and outlives it.  So
// one kind is stacked from the bottom and the other from the top.

#include <cstdint>
#include <vector>

#include "spool/runtime/memory/lifetimes.h"

namespace spool {

// Blocks in a time that counts births and deaths, so that no two of these are at once.
struct TimedBlocks {
  struct Block {
    size_t bytes = 0;
    size_t birth = 0, death = 0;  // indices of events
    size_t life() const { return death - birth; }
  };
  struct Event {
    size_t block = 0;
    bool is_birth = false;
  };
  std::vector<Block> blocks = {};
  std::vector<Event> events = {};
};

TimedBlocks in_event_time(const std::vector<Lifetime>&);
// The same blocks with time running backwards.
TimedBlocks backwards(TimedBlocks);
// The most bytes that are live at a time.
size_t max_live(const TimedBlocks&);

enum class End : uint8_t { bottom, top };

// Two blocks cross if each lives for a time without the other and for a time with it.  In one stack
// they leave a hole.  Two choices of an end for each block:
// - that of the fewer bytes of older blocks that it crosses, against those that it does not;
// - that where it crosses the heaviest blocks (by bytes * life) by the fewer bytes * time.
std::vector<End> ends_by_age(const TimedBlocks&);
std::vector<End> ends_by_weight(const TimedBlocks&);

// Finds offsets for blocks.  Its work is counted in steps of about a nanosecond.
class OffsetSweep {
 public:
  struct Limits {
    size_t capacity = 0;  // bytes
    // Blocks that live longer get their places first, in a sweep of their own.
    size_t life = 0;
    int tries = 1;
    size_t steps = 0;
  };

  // What is passed must outlive it.
  OffsetSweep(const TimedBlocks&, const std::vector<End>&);

  // Whether all blocks find a place.  One that does not is placed in the first sweep of the next
  // try.  Gives up when a limit is reached, or a block of the first sweep finds no place.
  bool place(const Limits&);

  // After a success.
  const std::vector<size_t>& offsets() const { return offsets_; }
  // Of place() so far.
  size_t steps() const { return steps_; }

 private:
  enum class Pass : uint8_t { early, late };
  struct Span {
    size_t begin = 0, end = 0;
  };
  class FreeMemory;
  bool sweep(Pass, const Limits&);
  bool place_block(size_t block, size_t next_early, FreeMemory&);
  void find_taken(size_t block, size_t next_early);
  Span span(size_t block) const;

  const TimedBlocks& all_;
  const std::vector<End>& ends_;
  std::vector<char> is_early_;  // whether a block is placed in the first sweep
  std::vector<size_t> early_;   // these blocks, by birth
  std::vector<Span> taken_;     // by early blocks that are born while some late one lives
  std::vector<size_t> offsets_;
  size_t failed_ = 0;  // the block that found no place
  size_t steps_ = 0, last_step_ = 0;
};

}  // namespace spool
