#pragma once

// When each allocation of a piece of work is made and freed; AllocationLog::lifetimes() has them
// from a rehearsal.
//
// The work may have phases, which Arena::begin_phase() begins.  If it is never called there is one
// phase, 0.  Of repeated work (repetition.h) only the first time is included.

#include <cstddef>
#include <vector>

#include "spool/runtime/memory/label.h"

namespace spool {

// An allocation that is live from its birth until its death.  Time counts the births and deaths of
// the allocations that are included.
struct Lifetime {
  size_t bytes = 0;  // whole granules
  Label label = {};
  size_t birth = 0, death = 0;
};

struct Lifetimes {
  // The indices of a phase's allocations, [begin, end).
  struct Phase {
    size_t begin = 0, end = 0;
  };
  std::vector<Lifetime> all = {};  // by birth
  std::vector<Phase> phases = {};
};

}  // namespace spool
