#pragma once

// Places blocks whose lifetimes are known into memory of a given capacity, in a sweep through time
// that looks at free memory only.
//
// A block goes to the end of the free memory where it breaks up no stack.  Values that forward
// saves are freed by backward in reverse, and gradients live until the optimizer; each kind is a
// stack, but the two cross, since a gradient is born after a saved value and outlives it.  So one
// kind is stacked from the bottom and the other from the top.

#include <cstdint>
#include <vector>

#include "spool/runtime/memory/lifetimes.h"

namespace spool {

// Blocks whose time counts births and deaths, so that no two events are at the same time.
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
// The maximum of live bytes.
size_t max_live(const TimedBlocks&);

enum class End : uint8_t { bottom, top };

// Chooses an end for each block, by one of two rules.  Two blocks cross if one is born and dies
// before the other and both live for a time: at the same end they would leave a hole.
//   - By age: the top, if it outlives most bytes of what is at the bottom when it is born.
//   - By weight (bytes * life): the end where it crosses less weight for less time.
std::vector<End> ends_by_age(const TimedBlocks&);
std::vector<End> ends_by_weight(const TimedBlocks&);

// Finds offsets for blocks.  Its work is counted in steps of a few nanoseconds each.
class OffsetSweep {
 public:
  struct Limits {
    size_t capacity = 0;  // bytes
    // Blocks that live longer than this are placed first, in a sweep of their own.
    size_t life = 0;
    int tries = 1;
    size_t steps = 0;
  };

  // The arguments must outlive it.
  OffsetSweep(const TimedBlocks&, const std::vector<End>&);

  // Returns whether all blocks found a place.  A block that did not is placed in the first sweep of
  // the next try.  Gives up if a block of the first sweep finds none, or at a limit.
  bool place(const Limits&);

  // After place() has succeeded.
  const std::vector<size_t>& offsets() const { return offsets_; }
  // Used by place() so far.
  size_t steps() const { return steps_.done; }

 private:
  struct Steps {
    size_t done = 0, max = 0;
    bool are_used_up() const { return done > max; }
  };
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
  std::vector<size_t> early_;   // the blocks of the first sweep, by birth
  std::vector<Span> taken_;     // by early blocks that are born while a late one lives
  std::vector<size_t> offsets_;
  size_t failed_ = 0;  // the block that found no place
  Steps steps_;
};

}  // namespace spool
