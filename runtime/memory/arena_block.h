#pragma once

// A block of an arena.  Only the arena's own sources include this header.

#include "spool/runtime/memory/arena.h"

namespace spool {

struct Arena::Block {
  size_t offset = 0, bytes = 0;
  Block* previous = nullptr;  // neighbours by offset; null in a slab
  Block* next = nullptr;
  bool free = false;
  Slab* slab = nullptr;  // that contains the block, if any
  Spec spec = {};
  Label label = {};
};

}  // namespace spool
