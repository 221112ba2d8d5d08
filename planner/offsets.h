#pragma once

// Lays out the memory of a step whose allocations' lifetimes are all known: allocations that are
// live at the same time do not overlap, and the layout is little larger than the most bytes that
// are live at a time, for a model's steps as a rule no larger.
//
// The smallest layout is hard to find.  So sweeps through time (offsets_sweep.h), forwards and
// backwards, with more and with fewer blocks placed in advance, try to place all within some number
// of bytes: first the most that are live at a time, then ever more.

#include "spool/runtime/memory/layout.h"

namespace spool {

// Stops at a layout of at most `enough` bytes; if the most that are live at a time are more, at one
// within 0.1 % of these.  If it finds none, it is the smallest it has found when its steps are used
// up.  Steps are counted, not timed, so equal lifetimes get equal offsets.
Layout assign_offsets(Lifetimes, size_t enough = 0);

// The most bytes that are live at a time.
size_t max_live(const Lifetimes&);

}  // namespace spool
