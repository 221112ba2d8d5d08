#pragma once

// Where the allocations of a step go, chosen when all of their lifetimes are known: two that are
// held at the same time lie apart, and the whole should take no more than the most bytes that are
// held at a time.  To find the least is hard; to put one after the other, in a good order, at the
// first place that is free for all of its life is nearly always the least on the tapes of
// transformers.  So a few orders are tried and the best is taken, the first of equals (as for
// inference: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).

#include "spool/runtime/layout.h"

namespace spool {

// The same for the same lifetimes.
Layout lay_out(Lifetimes);

// The most bytes that are held at a time.
size_t most_live(const Lifetimes&);

}  // namespace spool
