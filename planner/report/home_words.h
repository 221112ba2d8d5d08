#pragma once

// Says what of a plan's units lives on the host, and when it is updated, for people.

#include <string>

#include "spool/autograd/plan.h"

namespace spool {

// How many of a plan's units live on the host.
struct HomeCounts {
  size_t units = 0, parameters = 0, gradients = 0;
};
HomeCounts count_homes(const Plan&);

// "parameters and gradients of 30 of 32 units on the host, updated in backward"; empty if nothing
// of them lives there and all is updated at the end.
std::string homes_in_words(const Plan&);
// The same as a sentence that also says when they move; empty, too.
std::string homes_sentence(const Plan&);

}  // namespace spool
