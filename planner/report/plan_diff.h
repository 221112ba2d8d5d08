// Public: one of the headers of docs/public-headers.md.
#pragma once

// Describes how two plans differ, for people: "value 17 (gelu of node 9): keep -> recompute".
// Compared with Plan{}, it describes what a plan does.

#include <string>

#include "spool/autograd/program.h"

namespace spool {

// One line per difference from a to b, and one for a run of neighbours with the same difference;
// empty if there is none.  Given the plans' program, values and nodes are named.
std::string diff(const Plan& a, const Plan& b);
std::string diff(const Plan& a, const Plan& b, const Program&);

}  // namespace spool
