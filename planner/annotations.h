// Public: one of the headers of docs/public-headers.md.
#pragma once

// Makes a plan from annotations that a program writes by hand, one for each op of its tape.

#include <optional>
#include <span>

#include "spool/autograd/program.h"

namespace spool {

// The annotation of one op.  Consecutive ops with the same region number form a region.  Regions
// are numbered from 0, without gaps.
struct Annotation {
  std::optional<int> region = {};
  bool offload_inputs = false;  // offload what the region saves of inputs and of earlier values
  bool offload_inside = false;  // offload what the region computes and saves; no parameters
  bool checkpoint = false;      // recompute the region in backward
};

// Takes one annotation per node of the program, whose tape records and has run forward.  Throws if
// region numbers skip or return, or if the annotations of a region differ.
Plan annotated_plan(std::span<const Annotation>, const Program&);

}  // namespace spool
