#pragma once

// A plan written op by op: what research code says of its own tape, by hand.

#include <optional>
#include <span>

#include "spool/autograd/tape.h"

namespace spool {

// Of one op.  Consecutive ops of the same region number form one region; the first is numbered 0,
// and each after it one more than the one before.
struct Annotation {
  std::optional<int> region = {};
  bool offload_inputs = false;  // what is made before the region and saved in it, the caller's too
  bool offload_inside = false;  // what is made in the region and saved; not its parameters
  bool checkpoint = false;      // what is made in the region is made again in backward
};

// One for each node of a tape that records and has gone forward.  Throws a sentence where region
// numbers skip or come back, or the annotations of a region differ.
Plan annotated_plan(std::span<const Annotation>, const Tape&);

}  // namespace spool
