#pragma once

// The time of a traced step that ranks' exchanges take and nothing hides.

#include <vector>

#include "spool/runtime/trace.h"

namespace spool {

// When the compute stream waited for exchanges, and from its last work until the last exchange
// ended; by begin.  A wait is for the stream whose work ended when the wait did.
std::vector<Trace::Interval> waits_for_exchanges(const std::vector<TraceSpan>&);

// The sum of these.
double exposed_exchange_seconds(const std::vector<TraceSpan>&);

}  // namespace spool
