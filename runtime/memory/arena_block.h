#pragma once

// Blocks and frames of an arena.  Only sources of this folder include this header.

#include "spool/runtime/memory/arena.h"

namespace spool {

struct Arena::Block {
  size_t offset = 0, bytes = 0;
  Block* previous = nullptr;  // neighbours by offset; null in a frame
  Block* next = nullptr;
  bool free = false;
  Frame* frame = nullptr;  // that contains the block, if any
  size_t number = 0;       // counts the arena's allocations
  Spec spec = {};
  Label label = {};
};

// A block of the arena, and the live blocks that were placed in it.
struct Arena::Frame {
  Block* whole = nullptr;           // null for a frame of no bytes
  std::vector<Block*> placed = {};  // by offset
  bool open = true;

  // A block that overlaps these bytes, or null.
  const Block* overlapping(size_t offset, size_t bytes) const;
};

}  // namespace spool
