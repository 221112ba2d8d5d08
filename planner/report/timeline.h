// Public: one of the headers of docs/public-headers.md.
#pragma once

// Writes traces as JSON in Chrome's trace event format, which https://ui.perfetto.dev shows: a
// process for each trace, with a thread for each lane and counters of live bytes.  On a lane, the
// spans of an op lie below a span with the op's name.

#include <string>
#include <vector>

#include "spool/runtime/trace.h"

namespace spool {

struct NamedTrace {
  std::string name = {};  // "foretold"
  std::vector<TraceSpan> spans = {};
};

// The fraction of the trace's time in which compute waited for copies or updates, between 0 and 1;
// waits for exchanges between ranks are not among them (exposed_exchanges.h).
double exposed_copies(const std::vector<TraceSpan>&);

// Writes the traces to a file, whole or not at all.
void write_trace(const std::string& file, const std::vector<NamedTrace>&);
// Whether the file was written by write_trace(), or is empty.
bool is_trace(const std::string& file);

}  // namespace spool
