#pragma once

// Finds the fastest schedule of a small step under a limit on live bytes by an integer program over
// its ops (Checkmate, Jain et al. 2020), which the open solver CBC solves.
//
// A stage is a node's forward, or its backward with what is recomputed for it.  S[t,v]: value v is
// live when stage t begins; R[t,j]: op j runs again in stage t.  What is live while an op runs
// again is exact, too: L[t,k,v] is at least 1 if v exists before op k and is used at or after it in
// the stage, or kept beyond it.  Bytes and seconds that are not those of values come from the
// rehearsal that keeps all, as for every other plan.

#include <optional>

#include "spool/planner/search/search.h"

namespace spool::testing {

// Whether the solver is installed.
bool has_integer_solver();

// When the backward of a node reads what is saved for it: everything first, or each value when it
// needs it.  A value that is read late need not be live at the backward's peak.
enum class Reads : uint8_t { first, late };

// Seconds of the fastest step; infinite if none fits, nothing if the solver takes too long.  The
// step must have one micro-batch, and one chunk per op.
std::optional<double> fastest_step(const SearchedStep&, size_t bytes, Reads);

}  // namespace spool::testing
