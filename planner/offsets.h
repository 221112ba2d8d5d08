#pragma once

// Assigns an offset to each allocation of a step whose lifetimes are all known: allocations that
// are live at the same time do not overlap, and the arena should be little larger than the most
// bytes that are live at a time.  The smallest arena is hard to find, but first-fit in a good order
// comes near it (for inference, largest first: Pisarchyk and Lee, Efficient Memory Management for
// Deep Neural Net Inference, 2020).  So a few orders by size and lifetime are tried.  If none comes
// within 0.1 % of the most live bytes, each order is improved, within a step limit, by moving
// allocations that ended above that bound to the front.

#include "spool/runtime/memory/layout.h"

namespace spool {

// Deterministic: equal lifetimes get equal offsets.
Layout assign_offsets(Lifetimes);

// The most bytes that are live at a time.
size_t max_live(const Lifetimes&);

}  // namespace spool
