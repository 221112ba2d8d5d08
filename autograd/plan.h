#pragma once

// What a tape is told to do: plain data parallel to it.  Entry i is about value i, or node i; what
// a plan lacks means keep, and one chunk.

#include <cstdint>
#include <vector>

namespace spool {

// What becomes of a value that backward will need.
enum class Placement : uint8_t {
  keep,
  recompute,  // not saved: the inputs of the op that made it are, and the op runs again
};

struct Plan {
  std::vector<Placement> placement = {};  // of each value
  std::vector<int> chunks = {};           // of each node
};

}  // namespace spool
