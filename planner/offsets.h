#pragma once

// Assigns offsets to a step's allocations, whose lifetimes are all known, so that allocations live
// at the same time do not overlap.  The layout is little larger than the maximum of live bytes, and
// for steps of models usually no larger.
//
// The smallest layout is hard to find.  So sweeps through time (offsets_sweep.h), forwards and
// backwards, with more and with fewer blocks placed in advance, try to fit all blocks into a
// capacity: first the maximum of live bytes, then ever more.

#include "spool/runtime/memory/layout.h"

namespace spool {

// Stops at a layout of at most `enough` bytes, or within 0.1 % of the maximum of live bytes if that
// is more.  If no sweep finds one, returns the smallest found when its steps are used up.  Steps
// are counted, not timed, so equal lifetimes get equal offsets.
Layout assign_offsets(Lifetimes, size_t enough = 0);

// The maximum of live bytes.
size_t max_live(const Lifetimes&);

}  // namespace spool
