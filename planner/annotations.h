// Public: one of the headers of docs/public-headers.md.
#pragma once

// A plan from annotations that a program writes by hand, one for each op of its tape.

#include <optional>
#include <span>

#include "spool/autograd/program.h"

namespace spool {

// The annotation of one op.  Consecutive ops with the same region number form a region; the first
// region is number 0, each further one is one more than the one before.
struct Annotation {
  std::optional<int> region = {};
  bool offload_inputs = false;  // offload what is computed before the region, or an input, and
                                // saved in it
  bool offload_inside = false;  // offload what is computed in the region and saved; no parameters
  bool checkpoint = false;      // recompute the region in backward
};

// Takes an annotation for each node of the program of a tape that records and has run forward.
// Throws if region numbers skip or come back, or the annotations of a region differ.
Plan annotated_plan(std::span<const Annotation>, const Program&);

}  // namespace spool
