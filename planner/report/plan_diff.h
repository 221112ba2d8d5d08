#pragma once

// How two plans differ, for people: "value 17 (gelu of node 9): keep -> recompute".  Against Plan{}
// it is what a plan does.

#include <string>

#include "spool/autograd/tape.h"

namespace spool {

// A line for each thing that b has otherwise than a, what is alike in a row on one line; empty if
// there is none.  Given the tape that the plans are for, it says what values and nodes are.
std::string diff(const Plan& a, const Plan& b);
std::string diff(const Plan& a, const Plan& b, const Tape&);

}  // namespace spool
