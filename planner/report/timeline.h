#pragma once

// Traces as a file of trace events (Chrome's JSON), which https://ui.perfetto.dev shows: a process
// for each trace, below one another, in it a thread for each lane and counters of the bytes that
// are held.  On a lane, what belongs to one op lies below a span that bears the op's name.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spool/runtime/trace.h"

namespace spool {

struct NamedTrace {
  std::string name = {};  // "foretold"
  std::vector<TraceSpan> spans = {};
};

// The part of it during which compute waited for copies, between 0 and 1.
double exposed_copies(const std::vector<TraceSpan>&);

nlohmann::json trace_json(const std::vector<NamedTrace>&);

}  // namespace spool
