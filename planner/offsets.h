#pragma once

// Where the allocations of a step go, chosen when all of their lifetimes are known: two that are
// held at the same time lie apart, and the whole should take no more than the most bytes that are
// held at a time.  The least is hard to find; but to put one after the other, in a good order, at
// the first place that is free for all of its life comes near it (for inference, the largest first:
// Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).  So a few
// orders by size and length of life are tried, and where none is within 0.1 % of what must be held,
// each is bettered, by moving ahead who did not fit below that, for a bounded time.

#include "spool/runtime/memory/layout.h"

namespace spool {

// The same for the same lifetimes.
Layout assign_offsets(Lifetimes);

// The most bytes that are held at a time.
size_t max_live(const Lifetimes&);

}  // namespace spool
